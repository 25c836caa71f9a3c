"""One node's work with the metadata topic, from its start to its stop: reading all of it, and adding to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadataError
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log import records
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    partition_of,
)
from diskless_core.remote_log.partition_log import PartitionLog
from diskless_core.remote_log.states import RemoteLogStateError
from diskless_kafka.config import RemoteLogMetadataSettings
from diskless_kafka.metadata_clients import MetadataClients
from diskless_kafka.metadata_topic import Bounds
from diskless_kafka.reading_progress import ReadingProgress
from diskless_kafka.segment_states import SegmentStates, TopicRecord
from diskless_kafka.snapshot_folder import Kept, SnapshotFolder

_LOOK_AT_LOOP_S = 1.0

logger = logging.getLogger(__name__)


class MetadataSession:
    """What the topic says, its reader and its writer. All methods run on one event loop; all errors are of the noun."""

    def __init__(self, context: PluginContext, settings: RemoteLogMetadataSettings, cluster_id: str) -> None:
        self._context = context
        self._settings = settings
        self._cluster_id = cluster_id
        self._clients = MetadataClients(context, settings)
        self._states = SegmentStates(cluster_id, settings.topic_num_partitions)
        self._progress = ReadingProgress(self._states.positions, settings.consume_wait_ms / 1000)
        self._folder: SnapshotFolder | None = None
        self._keeping = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._locks: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()
        self._writes = 0
        self._refused: dict[tuple[int, int], str] = {}

    async def start(self) -> None:
        """Connect, and read all that is there."""
        topic_id = await self._clients.open()
        bounds = await self._clients.bounds()
        folder = SnapshotFolder(self._context.data_dir, uuid_text(topic_id))
        await self._load(folder, bounds)
        for partition, (_, end) in bounds.items():
            self._progress.require(partition, end)
        await self._clients.start_reading(self._states.positions, _OnLoop(self, asyncio.get_running_loop()))
        self._folder = folder
        for partition, (_, end) in bounds.items():
            await self._progress.reach(partition, end)
        self._keeper = asyncio.create_task(self._keep_regularly())

    async def stop(self) -> None:
        """Keep what was read, and disconnect. Idempotent."""
        try:
            await self._clients.stop_reading()
            if self._keeper is not None:
                self._keeper.cancel()
                with suppress(asyncio.CancelledError):
                    await self._keeper
            await self._keep()
        finally:
            self._progress.fail(RemoteLogMetadataError("the metadata of remote segments is stopped"))
            await self._clients.close()

    def log(self, partition: TopicIdPartition) -> PartitionLog:
        """The segments of a partition. Not to be changed, nor kept across an await."""
        self._progress.check(self._states.metadata_partition(partition))
        return self._states.log(partition)

    def deletions(self) -> Sequence[RemotePartitionDeleteMetadata]:
        """The partitions whose segments this cluster deletes."""
        for partition in self._states.positions:
            self._progress.check(partition)
        return self._states.deletions()

    async def note(self, event: RemoteLogMetadataEvent) -> None:
        """Add an event, if it follows from all that the topic has; one that changes nothing is not written."""
        key = event.topic_id_partition if isinstance(event, RemotePartitionDeleteMetadata) else event.segment_id
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            partition = self._states.metadata_partition(partition_of(event))
            if await self._changes(partition, event):
                await self._write(partition, event)

    async def take(self, read: Sequence[TopicRecord]) -> None:
        """Take in records that were read."""
        for record in read:
            refusal = self._states.take(record)
            if refusal is None:
                continue
            logger.warning(
                "Ignored the event at offset %d of %s-%d, as every reader does: %s",
                record.offset,
                self._settings.topic_name,
                record.metadata_partition,
                refusal,
            )
            if self._writes:
                self._refused[record.metadata_partition, record.offset] = refusal
        self._progress.moved()

    async def restart(self, bounds: Mapping[int, Bounds]) -> None:
        """Forget partitions of the topic, and let nobody rely on them until they are read again."""
        async with self._keeping:
            for partition, (start, end) in bounds.items():
                self._states.forget(partition, start)
                self._progress.require(partition, end)
            if self._folder is not None:
                await asyncio.to_thread(self._folder.discard)
        self._progress.moved()

    async def fail(self, error: Exception) -> None:
        """The reader has ended by a defect."""
        self._progress.fail(
            RemoteLogMetadataError(f"the metadata topic is not read any more: {error!r}", retriable=False)
        )

    async def _load(self, folder: SnapshotFolder, bounds: Mapping[int, Bounds]) -> None:
        kept = await asyncio.to_thread(folder.load)
        if kept is not None:
            if self._fits(kept, bounds):
                self._states.load(kept.snapshots, kept.offsets)
                return
            logger.warning("The offsets read last are not in the metadata topic any more: it is read from the start")
        await asyncio.to_thread(folder.discard)
        self._states.load([], {partition: start for partition, (start, _) in bounds.items()})

    def _fits(self, kept: Kept, bounds: Mapping[int, Bounds]) -> bool:
        """Whether all that was kept can have come from a topic with these bounds."""
        return (
            kept.offsets.keys() == bounds.keys()
            and all(bounds[number].start <= offset <= bounds[number].end for number, offset in kept.offsets.items())
            and all(
                snapshot.next_offset <= bounds[self._states.metadata_partition(snapshot.partition)].end
                for snapshot in kept.snapshots
            )
        )

    async def _changes(self, partition: int, event: RemoteLogMetadataEvent) -> bool:
        """Whether an event is to be written. That it is not, is decided only when all that others wrote is known."""
        self._progress.check(partition)
        with suppress(RemoteLogStateError):
            if self._states.changes(event):
                return True
        await self._progress.reach(partition, await self._clients.end(partition))
        try:
            return self._states.changes(event)
        except RemoteLogStateError as error:
            raise IllegalTransitionError(str(error)) from error

    async def _write(self, partition: int, event: RemoteLogMetadataEvent) -> None:
        self._writes += 1
        try:
            offset = await self._clients.write(partition, records.encode(event), self._cluster_id)
            await self._progress.reach(partition, offset + 1)
            refusal = self._refused.get((partition, offset))
        finally:
            self._writes -= 1
            if not self._writes:
                self._refused.clear()
        if refusal is not None:
            raise IllegalTransitionError(refusal)

    async def _keep_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.snapshot_interval_ms / 1000)
            await self._keep()

    async def _keep(self) -> None:
        """Write what has changed to disk. It is an error only in that a restart has more to read."""
        if self._folder is None:
            return
        async with self._keeping:
            snapshots = self._states.take_snapshots()
            if snapshots is None:
                return
            try:
                await asyncio.to_thread(self._folder.store, snapshots)
            except OSError as error:
                self._states.put_back(snapshots)
                logger.warning("Cannot keep what is known of remote segments, a restart has more to read: %s", error)


class _OnLoop:
    """A reader's deliveries, brought from its thread to the event loop."""

    def __init__(self, session: MetadataSession, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._loop = loop

    def deliver(self, records: Sequence[TopicRecord]) -> None:
        self._wait_for(self._session.take(records))

    def restart(self, bounds: Mapping[int, Bounds]) -> None:
        self._wait_for(self._session.restart(bounds))

    def failed(self, error: Exception) -> None:
        self._wait_for(self._session.fail(error))

    def _wait_for(self, delivery: Coroutine[Any, Any, None]) -> None:
        taken = asyncio.run_coroutine_threadsafe(delivery, self._loop)
        while not wait([taken], _LOOK_AT_LOOP_S).done:
            if self._loop.is_closed():
                raise RuntimeError("the event loop was closed before the reader was stopped")
        taken.result()
