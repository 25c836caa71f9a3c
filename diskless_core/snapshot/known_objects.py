"""Which WAL objects a coordinator knew when its snapshot was taken.

An object that is in here was committed, refused, or handed over: DisklessDescribeFiles answers from the same rows. One
that is not may have been committed since. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot.format import Part

_TABLE = "files"
_KEY = ("object_key",)


def known_objects_of_part(tables: Mapping[str, Sequence[str]], part: Part, data: ObjectData) -> Iterator[Sequence[str]]:
    """The keys of the objects in one part of a snapshot, a thousand or so at a time. Pure.

    Args:
        tables: those of the part's manifest.

    Raises:
        SnapshotError: the data are not the part's, or the snapshot is of another version.
    """
    (column,) = snapshot_format.positions(tables, _TABLE, _KEY)
    for _, rows in snapshot_format.decode_part(part, data, (_TABLE,)):
        yield [str(row[column]) for row in rows]
