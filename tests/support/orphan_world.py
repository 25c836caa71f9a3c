"""Brokers whose clocks are wrong, that upload, commit, look for orphans and crash, on one bucket and one log.

What must never happen is noted in `World.violations` when it happens, or found by `World.settle` in the end.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from diskless_core.clock_watch import ClockWatch
from diskless_core.coordinator.errors import CoordinatorError, NotCoordinatorError, OutcomeUnknownError
from diskless_core.diskless import operations
from diskless_core.diskless.commands import BatchResult, CommitFile, HandOver, PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS
from diskless_core.files.part import Files, FilesNeighbours, FilesSettings
from diskless_core.files.retention_worker import RetentionSchedule
from diskless_core.files.trimmer import Trimmer
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStoreError
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.part import Produce, ProduceNeighbours, ProduceSettings
from diskless_core.produce.validation import validate
from diskless_core.produce.writer import WalWriter, WriterSettings
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.wal.format import created_ms_of
from tests.support.detection import listing_detection
from tests.support.produce_path import RULES, batch_of
from tests.support.shards import TOPIC, ShardNode
from tests.support.virtual_time import VirtualClock

T = TypeVar("T")

SHARDS = 2
PARTITIONS = 4
GRACE_MS = 3_600_000
LEADERS = (1, 2)
OUTSIDER = 3
"""Never leads. Its clock may be wrong by days."""

YOUNG_MS = operations.HORIZON_AGE_MS
REQUEST_TIMEOUT_S = 60.0
ROUNDS = 8
"""In which all that is dead goes from owner to owner and away."""

PRODUCE = ProduceSettings(
    writer=WriterSettings(
        commit_interval_ms=250, linger_ms=0, buffer_max_bytes=1 << 20, inflight_max_bytes=1 << 30, object_prefix="wal"
    ),
    upload_parallelism=4,
    shutdown_timeout_ms=5_000,
)
FILES = FilesSettings(
    retention=RetentionSchedule(initial_delay_ms=0, interval_ms=GRACE_MS),
    delete_delay_ms=60_000,
    object_prefix="wal",
    snapshot_prefix="wal-snapshots",
    orphan_grace_period_ms=GRACE_MS,
    orphan_scan_interval_ms=GRACE_MS,
)


def shard_of(partition: PartitionKey) -> int:
    return partition.partition % SHARDS


def key_of(partition: int) -> PartitionKey:
    return PartitionKey(TOPIC, partition)


class SlowBucket(MemoryWalObjectStore):
    """An object is there long before the one who put it hears of that."""

    def __init__(self, clock: VirtualClock, answer_s: Callable[[], float]) -> None:
        super().__init__(clock, page_objects=3)
        self._answer_s = answer_s

    async def put(self, key: str, data: ObjectData) -> None:
        await super().put(key, data)
        await asyncio.sleep(self._answer_s())


class Line:
    """A broker's way to one coordinator: slow, it loses answers, and may end at one that was deposed meanwhile."""

    def __init__(self, world: World, shard: int) -> None:
        self._world = world
        self._shard = shard

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        answers = await self._ask(lambda shard: shard.commit_files(requests))
        for request, results in zip(requests, answers, strict=True):
            if any(result.error is ErrorCode.KAFKA_STORAGE_ERROR for result in results):
                self._world.note_refusal(request.object_key)
        return answers

    async def describe_files(self, object_keys: Sequence[str]) -> Mapping[str, bool]:
        return await self._ask(lambda shard: shard.describe_files(object_keys))

    async def oldest_file_ms(self) -> int | None:
        return await self._ask(lambda shard: shard.oldest_file_ms())

    async def raise_horizon(self, horizon_ms: int) -> None:
        await self._ask(lambda shard: shard.raise_horizon(horizon_ms))

    async def hand_over(self, files: Sequence[HandOver]) -> None:
        await self._ask(lambda shard: shard.hand_over(files))

    async def _ask(self, question: Callable[[DisklessShard], Awaitable[T]]) -> T:
        await asyncio.sleep(self._world.way_s())
        leaders = self._world.leaders(self._shard)
        if not leaders:
            await asyncio.sleep(1)
            raise NotCoordinatorError("nobody leads")
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer = await question(self._world.random.choice(leaders))
        except TimeoutError:
            raise OutcomeUnknownError("no answer in time") from None
        await asyncio.sleep(self._world.way_s())
        if self._world.loses_an_answer():
            raise OutcomeUnknownError("the answer was lost")
        return answer


class Broker:
    """One process after the other of one node: uploads, commits, scans, has a replica of each shard."""

    def __init__(self, world: World, node_id: int, skew_ms: int) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop(), seed=node_id)
        self.clock.skew_ms = skew_ms
        self.replicas = [
            ShardNode(world.shared, self.clock, node_id, shard_id=DISKLESS.shard(index)) for index in range(SHARDS)
        ]
        self.alive = False
        self._world = world
        self._node_id = node_id
        self._scans: list[asyncio.Task[None]] = []
        self._tidying: list[asyncio.Task[None]] = []
        self._files: Files
        self._writer: WalWriter

    async def start(self) -> None:
        world, metrics = self._world, Metrics()
        world.shared.resume_reads(self._node_id)  # a start needs the log
        for replica in self.replicas:
            await replica.start(lead=False)
        coordinators: dict[int, Any] = {index: Line(world, index) for index in range(SHARDS)}
        produce = ProduceNeighbours(
            node_id=self._node_id,
            objects=world.bucket,
            coordinators=coordinators,
            shard_of=shard_of,
            is_awaited=lambda _: False,
            on_uploaded=lambda *_: None,
            clock=self.clock,
            metrics=metrics,
        )
        self._writer = Produce(PRODUCE, produce).writer
        files = FilesNeighbours(
            objects=world.bucket,
            objects_source=lambda: world.bucket,
            detection=listing_detection(),
            shards={index: replica.shard for index, replica in enumerate(self.replicas)},
            coordinators=coordinators,
            shards_in_use=world.shards_in_use,
            scans_here=lambda: True,
            rules_of=lambda _: None,
            on_deleted=lambda _: None,
            clock=self.clock,
            clock_watch=ClockWatch(self.clock),
            metrics=metrics,
        )
        self._files = Files(FILES, files)
        self.alive = True

    async def kill(self) -> None:
        """It ends here and now, whatever it awaits."""
        self.alive = False
        self._writer.abort()
        self.give_up_scans()
        for work in self._tidying:
            work.cancel()
        await self._files.stop()
        for replica in self.replicas:
            await replica.kill()

    def produce(self, partitions: Sequence[int]) -> asyncio.Future[bool]:
        """One request with a record for each of the partitions; whether it was acknowledged as a whole."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        values = {partition: self._world.new_value() for partition in partitions}

        def settle(outcome: Sequence[BatchResult] | BaseException) -> None:
            results = [] if isinstance(outcome, BaseException) else outcome
            for partition, result in zip(values, results, strict=False):
                if result.error is ErrorCode.NONE:
                    self._world.acknowledged[partition, result.base_offset] = values[partition]
            answer.set_result(bool(results) and all(result.error is ErrorCode.NONE for result in results))

        checks, now_ms = self._writer.record_checks, self.clock.now_ms()
        batches = [
            (key_of(partition), validate(memoryview(batch_of(value)), RULES, 9, now_ms, checks))
            for partition, value in values.items()
        ]
        self._writer.append(Submission(batches=batches, release=lambda: None, settle=settle))
        self._writer.rotate()
        return answer

    def begin_scan(self) -> None:
        self._scans.append(asyncio.create_task(self._scan()))

    def give_up_scans(self) -> None:
        for scan in self._scans:
            scan.cancel()
        self._scans.clear()

    async def _scan(self) -> None:
        with suppress(CoordinatorError, WalObjectStoreError):
            await self.scan()

    async def scan(self) -> None:
        await self._files.orphans.scan(dry_run=False)

    def begin_tidying(self) -> None:
        """What dead objects there are in the shards that it leads: hand them over, or delete them."""
        self._tidying.append(asyncio.create_task(self.tidy()))

    async def tidy(self) -> None:
        for index, replica in enumerate(self.replicas):
            if replica.shard.leading:
                with suppress(CoordinatorError, WalObjectStoreError):
                    await self._files.trimmers[index].trim()
                    await self._files.deleters[index].round()

    async def drain(self) -> None:
        await self._writer.drain()


class World:
    """All of it. `random` decides whatever a story leaves open."""

    def __init__(self, random: Random, skews_ms: Sequence[int], ways_s: Sequence[float], answers_s: Sequence[float]):
        self.random = random
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.shared = SharedLog(append_delay_s=lambda: 0.001)
        self.healed = False
        self.bucket = SlowBucket(self.clock, lambda: 0.0 if self.healed else random.choice(answers_s))
        self.brokers = {
            node_id: Broker(self, node_id, skew_ms)
            for node_id, skew_ms in zip((*LEADERS, OUTSIDER), skews_ms, strict=True)
        }
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.violations: list[str] = []
        self.answers_to_lose = 0
        self._ways_s = ways_s
        self._values = 0

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()
        for index in range(SHARDS):
            shard = await self.leader(index)
            mine = [partition for partition in range(PARTITIONS) if partition % SHARDS == index]
            await shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", mine)

    async def shards_in_use(self) -> set[int]:
        return set(range(SHARDS))

    # --- what brokers meet ---------------------------------------------------------------------------------------

    def way_s(self) -> float:
        return 0.001 if self.healed else self.random.choice(self._ways_s)

    def loses_an_answer(self) -> bool:
        lost = self.answers_to_lose > 0
        self.answers_to_lose -= lost
        return lost

    def leaders(self, shard: int) -> list[DisklessShard]:
        """All that take themselves for the leader."""
        replicas = [broker.replicas[shard].shard for broker in self.brokers.values() if broker.alive]
        return [replica for replica in replicas if replica.leading]

    async def leader(self, shard: int) -> DisklessShard:
        while True:
            for leader in self.leaders(shard):
                with suppress(CoordinatorError, TimeoutError):
                    async with asyncio.timeout(REQUEST_TIMEOUT_S):
                        await leader.barrier()
                    return leader
            await asyncio.sleep(1)

    def note_refusal(self, object_key: str) -> None:
        """Only what is not young by the clock of anybody who may lead can have been refused for its age."""
        latest_ms = max(self.brokers[node_id].clock.now_ms() for node_id in LEADERS)
        if created_ms_of(object_key) > latest_ms - YOUNG_MS:
            self.violations.append(f"{object_key} was refused although it is young")

    def new_value(self) -> bytes:
        self._values += 1
        return b"%d" % self._values

    def agree(self, leader: int) -> None:
        """All hear of all, and of one leader for everything."""
        for node_id in self.brokers:
            self.shared.resume_reads(node_id)
        for index in range(SHARDS):
            self.shared.set_leader(DISKLESS.shard(index), leader)

    async def expire(self, partition: int) -> None:
        """Retention takes everything, should there be a leader to do so."""
        for shard in self.leaders(shard_of(key_of(partition))):
            with suppress(CoordinatorError, TimeoutError):
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await shard.delete_records(key_of(partition), operations.HIGH_WATERMARK)
                    await Trimmer(shard, self.clock, lambda: None).trim()

    # --- the end -------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let everything come to an end, and look at what there is.

        Raises:
            AssertionError: what must not be, is.
        """
        await self._heal()
        for broker in self.brokers.values():
            await asyncio.wait_for(broker.drain(), 10 * GRACE_MS / 1000)
            broker.give_up_scans()
        assert self.violations == []
        for broker in self.brokers.values():
            attempts = [await broker.produce(range(PARTITIONS)) for _ in range(3)]
            assert attempts[-1], "a broker is refused for ever"
        await self._check_records()
        await self._check_orphans()
        for broker in self.brokers.values():
            await broker.kill()

    async def _heal(self) -> None:
        self.healed, self.answers_to_lose = True, 0
        self.shared._faults.clear()
        for faults in self.bucket._faults.values():
            faults.next.clear()
        for broker in self.brokers.values():
            if not broker.alive:
                await broker.start()
        self.agree(LEADERS[0])
        for index in range(SHARDS):
            self.shared.land_late_appends(DISKLESS.shard(index))

    async def _check_records(self) -> None:
        """All objects with live batches are there, and what was acknowledged can be read."""
        for partition in range(PARTITIONS):
            index = shard_of(key_of(partition))
            shard = await self.leader(index)
            (replica,) = (one for broker in self.brokers.values() for one in broker.replicas if one.shard is shard)
            stored: dict[int, bytes | None] = {}
            for run in await replica.read_all(key_of(partition)):
                assert run.object_key in self.bucket.objects, f"{run.object_key} is committed and was deleted"
                data = memoryview(self.bucket.objects[run.object_key])[run.byte_offset :][: run.byte_size]
                offset = run.base_offset
                for position, header in record_batch.walk(data):
                    for record in record_batch.records(data[position : position + header.size]):
                        stored[offset] = record.value
                        offset += 1
            head = shard.head(key_of(partition))
            assert head is not None
            wanted = {
                offset: value
                for (acknowledged_in, offset), value in self.acknowledged.items()
                if acknowledged_in == partition and offset >= head.log_start_offset
            }
            assert {offset: stored.get(offset) for offset in wanted} == wanted

    async def _check_orphans(self) -> None:
        """Once nothing is alive any more and all times of creation are past, nothing is left in the bucket."""
        for partition in range(PARTITIONS):
            await self.expire(partition)
        await asyncio.sleep((2 * GRACE_MS + max(broker.clock.skew_ms for broker in self.brokers.values())) / 1000)
        leader = self.brokers[LEADERS[0]]
        for _ in range(ROUNDS):
            await leader.scan()
            await leader.tidy()
            await asyncio.sleep(ANSWERS_KEPT_MS / 1000)
        assert list(self.bucket.objects) == [], "objects are left that nobody needs"
