"""The keeper `first_remote_log_metadata`, for a broker that is alone: every event is a row, and all is in memory.

Replace `_open` and `_write_and_take` by your database. One that several nodes use has to check an event in the
transaction that adds it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import (
    DELETING,
    IllegalTransitionError,
    RemoteLogMetadata,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    partition_of,
)
from diskless_core.remote_log.partition_log import PartitionLog
from diskless_core.remote_log.records import decode, encode
from diskless_core.remote_log.states import RemoteLogStateError, apply, apply_deletion

from diskless_first_remote_log_metadata.settings import FirstRemoteLogMetadataSettings
from diskless_first_remote_log_metadata.worker import Worker


class FirstRemoteLogMetadataMetadata(RemoteLogMetadata):
    """The states that are allowed, and the lookups, come from `diskless_core.remote_log`: they need not be written."""

    def __init__(self, context: PluginContext, settings: FirstRemoteLogMetadataSettings) -> None:
        """A factory does no I/O: that is for `start`."""
        self._path = context.data_dir / settings.file
        self._database: sqlite3.Connection | None = None
        self._worker: Worker | None = None
        self._writing = asyncio.Lock()
        self._logs: dict[TopicIdPartition, PartitionLog] = {}
        self._deletions: dict[TopicIdPartition, RemotePartitionDeleteMetadata] = {}

    async def start(self, services: RemoteLogMetadataServices) -> None:
        del services  # a ledger in the coordinators' log, for who wants to keep nothing himself
        await self.stop()
        self._logs, self._deletions = {}, {}
        self._worker = Worker()
        try:
            for event in await self._worker.run(self._open):
                self._take(event)
        except (OSError, sqlite3.Error) as error:
            raise RemoteLogMetadataError(f"cannot open {self._path}: {error}; check the folder") from error

    async def stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.run(self._close)
            await asyncio.to_thread(worker.stop)

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._note(metadata)

    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        await self._note(update)

    async def update_partition(self, update: RemotePartitionDeleteMetadata) -> None:
        await self._note(update)

    async def find(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._log(partition).find(leader_epoch, offset)

    async def highest_offset(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        return self._log(partition).highest_offset(leader_epoch)

    async def list(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        return self._log(partition).segments(leader_epoch)

    async def deleting_partitions(self) -> Sequence[RemotePartitionDeleteMetadata]:
        return [known for known in self._deletions.values() if known.state in DELETING]

    async def _note(self, event: RemoteLogMetadataEvent) -> None:
        """Check, write, remember: one event after the other. A caller that is cancelled waits for the write."""
        if self._worker is None:
            raise RemoteLogMetadataError("it is not started, or it is stopped", retriable=False)
        async with self._writing:
            try:
                changes = self._changes(event)
            except RemoteLogStateError as error:
                raise IllegalTransitionError(str(error)) from error
            if changes:
                try:
                    await self._worker.run(lambda: self._write_and_take(event))
                except sqlite3.Error as error:
                    raise RemoteLogMetadataError(f"{self._path} cannot be written: {error}") from error

    def _changes(self, event: RemoteLogMetadataEvent) -> bool:
        """Whether an event says something new. RemoteLogStateError if it must not come now."""
        if isinstance(event, RemotePartitionDeleteMetadata):
            deletion = self._deletions.get(partition_of(event))
            return apply_deletion(deletion, event) != deletion
        segment = self._log(partition_of(event)).get(event.segment_id)
        return apply(segment, event) != segment

    def _take(self, event: RemoteLogMetadataEvent) -> None:
        partition = partition_of(event)
        if isinstance(event, RemotePartitionDeleteMetadata):
            deletion = apply_deletion(self._deletions.get(partition), event)
            if deletion is not None:
                self._deletions[partition] = deletion
        else:
            log = self._logs.setdefault(partition, PartitionLog())
            segment = apply(log.get(event.segment_id), event)
            if segment is not None:
                log.put(segment)

    def _log(self, partition: TopicIdPartition) -> PartitionLog:
        if self._worker is None:
            raise RemoteLogMetadataError("it is not started, or it is stopped", retriable=False)
        return self._logs.get(partition) or PartitionLog()

    # -- on the thread ------------------------------------------------------------------------------------------------

    def _open(self) -> Sequence[RemoteLogMetadataEvent]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(self._path, check_same_thread=False)
        self._database.execute("PRAGMA synchronous = FULL")  # an event that was noted must outlive a power failure
        self._database.execute("CREATE TABLE IF NOT EXISTS events (event BLOB NOT NULL)")
        return [decode(event) for (event,) in self._database.execute("SELECT event FROM events ORDER BY rowid")]

    def _write_and_take(self, event: RemoteLogMetadataEvent) -> None:
        if self._database is not None:
            with self._database:
                self._database.execute("INSERT INTO events VALUES (?)", (encode(event),))
            self._take(event)

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
