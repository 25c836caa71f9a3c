"""The decisions on an object whose batches are gone: it is taken over, handed over, deleted, forgotten. Pure.

(KIP-1164, "WAL file management".) Each of them can be asked for again, however late, and then changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import Key, Table
from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.records import (
    DisklessRecord,
    FileDeleted,
    FileForgotten,
    FileHandedOver,
    FileReceived,
)
from diskless_core.diskless.tables import DEAD_FILES, FILES, GONE_FILES, RECEIVED_FILES

DisklessCommand = Command[DisklessRecord]

Wanted = list[tuple[Table[Any], Key]]
"""Rows that an operation reads and memory may not have."""


def receive_files(command: DisklessCommand, shard_index: int, files: Sequence[HandOver]) -> None:
    """Take objects over; those that this shard had already stay as they are.

    One that is not known here, because it never was committed or was forgotten, leaves a tombstone that ends as a dead
    object does. Wants what `rows_to_receive` says prefetched.

    The sender's clock may be wrong: nothing was committed or has died in the future, and of a tombstone, of which this
    shard knows nothing else, the grace period begins now.
    """
    for file in files:
        key = (file.object_key,)
        known = command.get(FILES, key)
        is_first_owner = known is not None and known.owner_ids[:1] == (shard_index,)
        if is_first_owner or command.get(RECEIVED_FILES, key) is not None:
            continue
        command.emit(
            FileReceived(
                object_key=file.object_key,
                owner_ids=tuple(file.owner_ids),
                committed_at=min(file.committed_at, command.now_ms),
                dead_at=command.now_ms if known is None else min(file.dead_at, command.now_ms),
                was_unknown=known is None,
            )
        )


def files_handed_over(command: DisklessCommand, object_keys: Sequence[str], next_owner: int) -> None:
    """Note that the next owner has confirmed that it has these. Wants what `rows_to_leave` says prefetched."""
    for object_key in object_keys:
        if _can_leave(command, object_key):
            command.emit(FileHandedOver(object_key=object_key, next_owner=next_owner))


def files_deleted(command: DisklessCommand, object_keys: Sequence[str]) -> None:
    """Note that the object store has confirmed that these are gone. Wants what `rows_to_leave` says prefetched."""
    for object_key in object_keys:
        if _can_leave(command, object_key):
            command.emit(FileDeleted(object_key=object_key))


def forget_files(command: DisklessCommand, object_keys: Sequence[str]) -> None:
    """Forget objects that this shard is through with, and no others. Wants what `rows_to_forget` says prefetched."""
    for object_key in object_keys:
        if command.get(GONE_FILES, (object_key,)) is not None:
            command.emit(FileForgotten(object_key=object_key))


def rows_to_receive(files: Sequence[HandOver]) -> Wanted:
    return [(table, (file.object_key,)) for table in (FILES, RECEIVED_FILES) for file in files]


def rows_to_leave(object_keys: Sequence[str]) -> Wanted:
    return [(table, (object_key,)) for table in (DEAD_FILES, GONE_FILES) for object_key in object_keys]


def rows_to_forget(object_keys: Sequence[str]) -> Wanted:
    return [(GONE_FILES, (object_key,)) for object_key in object_keys]


def _can_leave(command: DisklessCommand, object_key: str) -> bool:
    key = (object_key,)
    return command.get(DEAD_FILES, key) is not None and command.get(GONE_FILES, key) is None
