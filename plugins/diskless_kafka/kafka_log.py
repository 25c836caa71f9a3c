"""`coordinator_log=kafka`: the log is a topic of an Apache Kafka for each kind of shard, with a partition a shard.

One message is one entry, so an entry's offset is its message's. All that blocks runs on threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from diskless_core.log.segment import require_whole_batch
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    EntryRefusedError,
    LeadershipHint,
    LogBatch,
    LogBounds,
)
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_kafka.log_backend import LogBackend
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.log_reader import Place, ReadMessage
from diskless_kafka.log_shard import LogShard
from diskless_kafka.shard_hints import ShardHints
from diskless_kafka.topic_ids import TopicIds

_STOPPED = "the coordinator log is stopped"


class NewBackend(Protocol):
    """Makes the clients of an Apache Kafka, not connected: `LogBackend`, or what stands for it."""

    def __call__(self, node_id: int, settings: KafkaLogSettings, ids: TopicIds, *, writes: bool) -> LogBackend: ...


class KafkaCoordinatorLog(CoordinatorLog):
    """The topics of one prefix in one Apache Kafka."""

    is_shared = True

    def __init__(
        self, context: PluginContext, settings: KafkaLogSettings, new_backend: NewBackend = LogBackend
    ) -> None:
        self.max_entry_bytes = settings.max_entry_bytes
        self._node_id = context.node_id
        self._data_dir = context.data_dir
        self._instance = context.clock.new_uuid()
        self._settings = settings
        self._new_backend = new_backend
        self._backend: LogBackend | None = None
        self._shards: dict[ShardId, LogShard] = {}
        self._places: dict[Place, LogShard] = {}
        self._hints: dict[ShardId, ShardHints] = {}

    async def start(self) -> None:
        await self._start(writes=True)

    async def start_reading(self) -> None:
        await self._start(writes=False)

    async def _start(self, *, writes: bool) -> None:
        backend = self._new_backend(self._node_id, self._settings, TopicIds(self._data_dir), writes=writes)
        try:
            await backend.open(self._deliver)
        except BaseException:
            await backend.close()
            raise
        self._backend = backend

    async def stop(self) -> None:
        backend, self._backend = self._backend, None
        if backend is None:
            return
        backend.stopped.set()
        for shard in self._shards.values():
            shard.stop(CoordinatorLogError(_STOPPED))
        await asyncio.gather(*(hints.stop() for hints in self._hints.values()))
        self._shards, self._places, self._hints = {}, {}, {}
        await backend.close()

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        log = self._shard(shard)
        sound, problem = 0, ""
        for batch in batches:
            problem = self._problem_of(batch)
            if problem:
                break
            sound += 1
        offsets = await log.append(batches[:sound]) if sound else []
        if problem:
            raise EntryRefusedError(problem, position=sound)
        return offsets

    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        return self._shard(shard).stream(offset)

    async def bounds(self, shard: ShardId) -> LogBounds:
        return await self._shard(shard).bounds()

    async def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        backend = self._running()
        hints = self._hints.get(shard)
        if hints is None:
            hints = self._hints[shard] = ShardHints(shard, backend, self._node_id)
        async for hint in hints.stream(candidate=candidate):
            yield hint

    async def prune(self, shard: ShardId, before: int) -> None:
        await self._shard(shard).prune(before)

    def _shard(self, shard: ShardId) -> LogShard:
        backend = self._running()
        log = self._shards.get(shard)
        if log is None:
            log = self._shards[shard] = LogShard(shard, backend, self._instance)
            self._places[log.place] = log
        return log

    def _running(self) -> LogBackend:
        if self._backend is None:
            raise CoordinatorLogError(_STOPPED)
        return self._backend

    def _problem_of(self, batch: bytes) -> str:
        if len(batch) > self.max_entry_bytes:
            return (
                f"an entry has {len(batch)} bytes, and the log takes {self.max_entry_bytes}: raise "
                "coordinator_log.kafka.topic.max.message.bytes and max.message.bytes of the topics"
            )
        try:
            require_whole_batch(batch)
        except CorruptBatchError as error:
            return f"refused to append: {error}"
        return ""

    def _deliver(self, read: Mapping[Place, Sequence[ReadMessage]], failed: Mapping[Place, KafkaClientError]) -> None:
        for place, messages in read.items():
            if place in self._places:
                self._places[place].deliver(messages)
        for place, error in failed.items():
            if place in self._places:
                self._places[place].reader_failed(error)
