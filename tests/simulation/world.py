"""A cluster in one process, from one seed: its brokers, clients and troubles, then peace, and what must hold then."""

from __future__ import annotations

import asyncio
import contextvars
import random
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from diskless_core.broker.coordinators import shard_ids
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import BatchResult, PartitionKey
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS, GROUPS
from tests.simulation import scenario as scenarios
from tests.simulation.broker import Broker, Disk
from tests.simulation.bucket import Bucket, BucketFaults
from tests.simulation.bucket_log import LogInBucket
from tests.simulation.checker import Allowances, Checker
from tests.simulation.clients import MAX_IN_FLIGHT, Consumer, Producer, RecordDeleter, ask
from tests.simulation.faults import Troubles
from tests.simulation.garbling import Garbler
from tests.simulation.history import History
from tests.simulation.kafka_log import LogInKafka
from tests.simulation.logs import WorldLog
from tests.simulation.members import Member
from tests.simulation.metadata_log import MetadataLog
from tests.simulation.network import Network, NetworkError
from tests.simulation.processes import ProcessLoop
from tests.simulation.scenario import LogKind
from tests.simulation.settlement import Settlement
from tests.support.virtual_time import START_MS

STEP_S = 0.5
SETTLED_WITHIN_S = 600.0
LONGEST_S = 3_600.0
"""Of a whole history. Most take a minute, and few take three."""

_COMPRESSION_TYPES = ("producer", "zstd", "uncompressed")
"""Of the topics, in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed. `violation` is None when every promise was kept."""

    seed: int
    digest: str
    lines: list[str]
    violation: str | None
    acknowledged: int
    read: int
    committed_offsets: int
    segments: int
    deleted_objects: int
    entries: int
    terms: int


class World:
    """See the module. It implements what brokers, clients and troubles each want to see of it."""

    def __init__(self, loop: ProcessLoop, seed: int, steps: float) -> None:
        self.loop = loop
        self.seed = seed
        self.scenario = scenarios.draw(seed, steps)
        self._sources: list[random.Random] = []
        self.history = History(loop.time)
        self.checker = Checker(
            self.history,
            loop.time,
            self.now_ms,
            self.scenario.producer_expiration_ms,
            stamps_are_true=not self.scenario.clock_behind_ms,
        )
        self.network = Network(self._source("network"))
        self.bucket = Bucket(self._source("bucket"), self.history, self.checker, self.now_ms)
        self.checker.bucket = self.bucket
        self.shard_ids = shard_ids({DISKLESS: self.scenario.shards, GROUPS: self.scenario.shards})
        self.log = self._make_log()
        self.brokers: dict[int, Broker] = {}
        self.disks = {node_id: Disk() for node_id in range(1, self.scenario.brokers + 1)}
        self.active = True
        self.lagging: set[int] = set()
        self.garbler = Garbler(self._source("garbler"), self.history)
        self._ids = self._source("ids")
        self._lives: dict[int, int] = {}
        self._client_count = 0
        self._topics: list[bytes] = []
        self._deleted_topics: set[bytes] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def _make_log(self) -> WorldLog:
        kind, source, watcher = self.scenario.log, self._source("log"), self.checker.truth.take
        match kind:
            case LogKind.BUCKET:
                return LogInBucket(self.bucket, self.shard_ids, source, watcher, self.history.violated)
            case LogKind.KAFKA:
                return LogInKafka(self.shard_ids, source, watcher)
            case LogKind.LENIENT | LogKind.LENIENT_CLUSTER:
                return MetadataLog(source, watcher, nominates_all_shards=kind is LogKind.LENIENT)

    def _source(self, name: str) -> random.Random:
        source = random.Random(f"{name} {self.seed}")
        self._sources.append(source)
        return source

    # --- what the others see -------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000)

    def broker(self, node_id: int) -> Broker | None:
        return self.brokers.get(node_id)

    def any_broker(self, source: random.Random) -> Broker | None:
        up = [broker for broker in self.brokers.values() if broker.started]
        return source.choice(up) if up else None

    def answered(self, key: PartitionKey, result: BatchResult) -> None:
        if result.error is ErrorCode.NONE:
            self.checker.answered(key, result.base_offset)

    def is_deleted(self, key: PartitionKey) -> bool:
        return key.topic_id in self._deleted_topics

    def topic_name(self, key: PartitionKey) -> str:
        return f"topic-{self._topics.index(key.topic_id)}"

    def partition_keys(self) -> list[PartitionKey]:
        return [PartitionKey(topic, index) for topic in self._topics for index in range(self.scenario.partitions)]

    def start_broker(self, node_id: int) -> None:
        """Start the next life of a node, and again when that fails, as an operator's supervisor does."""
        life = self._lives[node_id] = self._lives.get(node_id, 0) + 1
        broker = Broker(self, node_id, life, self.disks[node_id], self._source(f"broker {node_id} {life}"))
        skew_ms = self.scenario.skew_ms
        broker.clock.skew_ms = self._source(f"skew {node_id}").randint(-skew_ms, skew_ms)
        self.brokers[node_id] = broker
        self.history.note("world", f"{broker.process.name} starts")
        broker.process.start(self._boot(broker))

    async def _boot(self, broker: Broker) -> None:
        try:
            await broker.start()
        except Exception as error:
            self.history.note("world", f"{broker.process.name} cannot start: {error}")
            await asyncio.sleep(1)
            if self.brokers.get(broker.node_id) is broker:
                context = contextvars.Context()
                self.loop.call_soon(self._replace, broker, context=context)

    def _replace(self, broker: Broker) -> None:
        broker.process.freeze()
        self.start_broker(broker.node_id)

    # --- the story -----------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """From the first start to the last check.

        Raises:
            Violation: a promise was broken, or there is no end to it.
        """
        try:
            async with asyncio.timeout(LONGEST_S) as limit:
                await self._live()
        except TimeoutError:
            if not limit.expired():
                raise
            self.history.violated("it never comes to an end")
            self.stop_at_violation()

    async def _live(self) -> None:
        for node_id in list(self.disks):
            self.start_broker(node_id)
        troubles = Troubles(self, self._source("troubles"))
        troubles.make_peace()
        await self._create_topic()
        await self._create_topic()
        self._go_wrong()
        self._start(*self._clients(self.partition_keys()), *self._members(), *troubles.all())
        if self.scenario.deletes_records:
            self._start(RecordDeleter(self, self._source("deleter"), self.partition_keys()).run())
        if self.scenario.deletes_topic:
            self._start(self._delete_a_topic())
        if self.scenario.creates_topic:
            self._start(self._create_topic_later())
        await self._pass(self.scenario.active_s)
        self.active = False
        self._move_clock(self.scenario.clock_behind_ms)
        troubles.make_peace()
        await self.until(self._clients_are_done, lambda: "clients get no answers")
        self.log.land_all()
        await Settlement(self).check()
        self._look()
        self.history.note("world", f"ends; {[source.random() for source in self._sources]}")

    def _start(self, *works: Coroutine[Any, Any, None]) -> None:
        self._tasks += [self.loop.create_task(work) for work in works]

    def _go_wrong(self) -> None:
        scenario = self.scenario
        self.checker.allowances = Allowances(
            skew_ms=2 * scenario.skew_ms,
            delete_delay_ms=scenario.delete_delay_ms,
            retention_ms=scenario.retention_ms,
        )
        self._move_clock(-scenario.clock_behind_ms)
        self.network.loss_rate = scenario.loss_rate
        self.network.slow_rate = scenario.slow_network_rate
        self.garbler.rate = scenario.garble_rate
        self.log.error_rate = scenario.log_error_rate
        self.log.slow_rate = scenario.log_slow_rate
        self.bucket.faults = BucketFaults(error_rate=scenario.bucket_error_rate, slow_rate=scenario.bucket_slow_rate)
        flush_s = self._source("stores")
        self.loop.executor_delay_s = lambda: flush_s.uniform(0, 0.01)

    def _move_clock(self, by_ms: int) -> None:
        """Set the clock of the broker that leads first."""
        if by_ms:
            self.history.note("trouble", f"the clock of {self.brokers[1].process.name} is set by {by_ms} ms")
            self.brokers[1].clock.skew_ms += by_ms

    def _clients(self, keys: Sequence[PartitionKey]) -> Iterator[Coroutine[Any, Any, None]]:
        """Producers and consumers of these partitions."""
        scenario = self.scenario
        kinds = [True] * scenario.idempotent_producers + [False] * scenario.plain_producers
        for key in keys:
            for is_idempotent in kinds:
                if self._ids.random() < 0.7:
                    name, source = self._new_client()
                    in_flight = MAX_IN_FLIGHT if is_idempotent and not scenario.producers_expire else 1
                    yield Producer(self, source, name, key, idempotent=is_idempotent, in_flight=in_flight).run()
            if not self.scenario.members or key.topic_id != self._topics[0] or self._ids.random() < 0.3:
                name, source = self._new_client()
                yield Consumer(self, source, name, key).run()

    def _members(self) -> Iterator[Coroutine[Any, Any, None]]:
        """A group that reads the first topic."""
        for _ in range(self.scenario.members):
            name, source = self._new_client()
            yield Member(self, source, name, "topic-0").run()

    def _new_client(self) -> tuple[int, random.Random]:
        self._client_count += 1
        return self._client_count, self._source(f"client {self._client_count}")

    # --- topics --------------------------------------------------------------------------------------------------

    async def _create_topic(self) -> None:
        """Create one, and wait until all of its partitions are there."""
        name, count = f"topic-{len(self._topics)}", self.scenario.partitions
        configs = {
            "retention.ms": str(self.scenario.retention_ms),
            "segment.bytes": str(self.scenario.segment_bytes),
            "index.interval.bytes": "100",
            "remote.storage.enable": str(self.scenario.compaction_interval_ms > 0).lower(),
            "compression.type": _COMPRESSION_TYPES[len(self._topics) % len(_COMPRESSION_TYPES)],
        }
        topic_id: uuid.UUID = await self.command(lambda broker: broker.create_topic(name, count, configs))
        keys = [PartitionKey(topic_id.bytes, index) for index in range(count)]
        truth = self.checker.truth
        await self.until(lambda: all(key in truth.partitions for key in keys), lambda: f"{name} lacks partitions")
        self.history.note("world", f"the topic {topic_id.hex[:6]} is there")
        self._topics.append(topic_id.bytes)

    async def _create_topic_later(self) -> None:
        await asyncio.sleep(self._source("creation").uniform(0.1, 0.7) * self.scenario.active_s)
        before = set(self.partition_keys())
        await self._create_topic()
        self._start(*self._clients([key for key in self.partition_keys() if key not in before]))

    async def _delete_a_topic(self) -> None:
        source = self._source("deletion")
        await asyncio.sleep(source.uniform(0.2, 1.0) * self.scenario.active_s)
        topic = source.choice(self._topics)
        self._deleted_topics.add(topic)
        self.checker.topic_may_go(f"topic-{self._topics.index(topic)}")
        self.history.note("world", f"the topic {topic.hex()[:6]} is deleted")
        await self.command(lambda broker: broker.delete_topic(uuid.UUID(bytes=topic)))
        partitions = [self.checker.truth.partitions[key] for key in self.partition_keys() if key.topic_id == topic]
        await self.until(lambda: all(one.deleted for one in partitions), lambda: "a deleted topic has partitions")

    async def command(self, work: Callable[[Broker], Any]) -> Any:
        """Ask any broker until there is an answer, or a promise is broken: then there may never be one."""
        while True:
            try:
                return await ask(self, self.any_broker(self._ids), work)
            except (NetworkError, CoordinatorError):
                await asyncio.sleep(0.2)
                self._look()

    # --- time ----------------------------------------------------------------------------------------------------

    async def _pass(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await asyncio.sleep(min(STEP_S, end - self.loop.time()))
            self._look()

    async def until(self, condition: Callable[[], bool], complaint: Callable[[], str], step_s: float = STEP_S) -> None:
        end = self.loop.time() + SETTLED_WITHIN_S
        while not condition():
            await asyncio.sleep(step_s)
            self._look()
            if self.loop.time() > end:
                self.history.violated(complaint())
                self.stop_at_violation()

    def _look(self) -> None:
        for broker in self.brokers.values():
            for defect in broker.defects:
                self.history.violated(defect)
            if broker.started and not broker.process.is_frozen:
                for shard in broker.shards.values():
                    for key, head in shard.heads().items():
                        self.checker.head_seen(broker.process.name, key, head)
        for defect in self.loop.defects:
            self.history.violated(f"a defect: {defect}")
        for task in self._tasks:
            if task.done() and task.exception() is not None:
                self.history.violated(f"a defect of a client: {task.exception()!r}")
        self.stop_at_violation()

    def stop_at_violation(self) -> None:
        if self.history.violation is not None:
            raise self.history.violation

    def _clients_are_done(self) -> bool:
        return all(task.done() for task in self._tasks)

    def outcome(self) -> Outcome:
        violation = self.history.violation
        truth = self.checker.truth
        return Outcome(
            seed=self.seed,
            digest=self.history.digest,
            lines=self.history.lines,
            violation=str(violation) if violation is not None else None,
            acknowledged=self.checker.acknowledged,
            read=self.checker.read,
            committed_offsets=self.checker.committed_offsets,
            segments=truth.segments_taken,
            deleted_objects=self.checker.deleted_objects,
            entries=truth.entries,
            terms=truth.terms,
        )
