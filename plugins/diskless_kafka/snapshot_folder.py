"""A node's folder with what it has read of the metadata topic, so that a restart reads on. All of it blocks.

Flat files first, then their names, then the offsets that they reach, each file replaced atomically: whatever kill or
power failure comes between, a flat file is never older than the offsets, and what is read twice is known to have been
read. What is damaged or incomplete is not used at all: the topic has everything.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from diskless_core.plugin.folders import make_folder, sync_folder
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_kafka import snapshot_file
from diskless_kafka.segment_states import Snapshots
from diskless_kafka.snapshot_file import (
    COMMITTED_OFFSETS,
    SNAPSHOT_NAMES,
    SUFFIX,
    CorruptSnapshotError,
    PartitionSnapshot,
)

_TEMPORARY = ".tmp"

logger = logging.getLogger(__name__)


class Kept(NamedTuple):
    """What a folder has: the snapshots, and from which offset each partition of the metadata topic is read on."""

    snapshots: Sequence[PartitionSnapshot]
    offsets: Mapping[int, int]


class SnapshotFolder:
    """The copy of one metadata topic.

    Args:
        root: holds a folder for the topic that was read last; what else is in it is removed.
        name: of that folder: the topic's id, for a topic that was made anew has another.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._folder = root / name

    def load(self) -> Kept | None:
        """What was kept; None where there is nothing, or nothing that can be relied on.

        Raises:
            OSError: a file that is there can't be read.
        """
        try:
            return self._load()
        except FileNotFoundError as error:
            if not (self._folder / COMMITTED_OFFSETS).exists():
                return None
            logger.warning("%s is missing: all remote segments are read from the topic again", error.filename)
        except CorruptSnapshotError as error:
            logger.warning("%s in %s: all remote segments are read from the topic again", error, self._folder)
        return None

    def discard(self) -> None:
        """Remove everything, the offsets first, without which nothing else counts."""
        (self._folder / COMMITTED_OFFSETS).unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def store(self, snapshots: Snapshots) -> None:
        """Keep these, and none of partitions that are not present any more.

        Raises:
            OSError: they are not kept; those before them still are.
        """
        make_folder(self._folder)
        for snapshot in snapshots.changed:
            self._replace(_name(snapshot.partition), snapshot_file.encode(snapshot))
        names = sorted(map(_name, snapshots.present))
        sync_folder(self._folder)
        self._replace(SNAPSHOT_NAMES, snapshot_file.encode_names(names))
        sync_folder(self._folder)
        self._replace(COMMITTED_OFFSETS, snapshot_file.encode_offsets(snapshots.offsets))
        sync_folder(self._folder)
        self._remove_all_but({*names, SNAPSHOT_NAMES, COMMITTED_OFFSETS})

    def _load(self) -> Kept:
        offsets = snapshot_file.decode_offsets((self._folder / COMMITTED_OFFSETS).read_bytes())
        names = snapshot_file.decode_names((self._folder / SNAPSHOT_NAMES).read_bytes())
        return Kept([self._read(name) for name in names], offsets)

    def _read(self, name: str) -> PartitionSnapshot:
        _, _, number = name.removesuffix(SUFFIX).rpartition("-")
        if not (number.isascii() and number.isdigit()):
            raise CorruptSnapshotError(f"{name} names no partition")
        snapshot = snapshot_file.decode((self._folder / name).read_bytes(), int(number))
        if _name(snapshot.partition) != name:
            raise CorruptSnapshotError(f"{name} is of another partition")
        return snapshot

    def _replace(self, name: str, data: bytes) -> None:
        temporary = self._folder / (name + _TEMPORARY)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._folder / name)

    def _remove_all_but(self, names: set[str]) -> None:
        for path in self._folder.iterdir():
            if path.name not in names:
                path.unlink()
        for path in self._folder.parent.iterdir():
            if path != self._folder:
                shutil.rmtree(path)


def _name(partition: TopicIdPartition) -> str:
    return f"{uuid_text(partition.topic_id)}-{partition.partition}{SUFFIX}"
