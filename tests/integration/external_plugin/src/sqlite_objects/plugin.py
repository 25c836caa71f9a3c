"""What the distribution announces."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.offset_assignment import OffsetAssignmentPlugin
from diskless_core.plugin.wal_object_store import WalObjectStorePlugin
from sqlite_objects.offsets import EvenOffsets
from sqlite_objects.store import SqliteObjects, SqliteObjectsSettings


@hookimpl
def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
    """Objects as rows."""
    return [
        WalObjectStorePlugin(
            name="sqlite_objects",
            factory=SqliteObjects,
            settings=SqliteObjectsSettings,
            api_version="1.0",
            help="Keeps WAL objects as rows of a SQLite table.",
        )
    ]


@hookimpl
def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
    """Offsets with gaps, which consumers have to bear."""
    return [
        OffsetAssignmentPlugin(
            name="even", factory=EvenOffsets, api_version="1.0", help="Begins every batch at an even offset."
        )
    ]
