"""Hook implementation. obstore is imported when the store starts."""

from __future__ import annotations

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.wal_object_store import WalObjectStorePlugin
from diskless_obstore.config import ObstoreSettings
from diskless_obstore.store import ObstoreObjectStore


def make_store(_context: PluginContext, settings: ObstoreSettings) -> ObstoreObjectStore:
    """The object store of `wal_object_store=obstore`."""
    return ObstoreObjectStore(settings)


@hookimpl
def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
    """WAL objects in S3, written on condition too."""
    return [
        WalObjectStorePlugin(
            name="obstore",
            factory=make_store,
            settings=ObstoreSettings,
            api_version="1.0",
            help="WAL objects in S3 through obstore, for less CPU time than through fsspec.",
        )
    ]
