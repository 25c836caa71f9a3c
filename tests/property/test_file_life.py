"""Objects of several shards live and die while nodes do too: what can be read is stored, in the end nothing else is."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import BatchResult, CommitFile
from diskless_core.diskless.operations import HORIZON_AGE_MS
from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS
from diskless_core.files.retention import RetentionRules
from diskless_core.files.retention_worker import RetentionSchedule
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import AppendFault
from diskless_core.testing.fakes.objects import Operation
from diskless_core.wal.format import object_key
from tests.support.file_life import DELAY_MS, NEVER, FileLife
from tests.support.hand_over_post import Loss
from tests.support.shards import BATCH_BYTES, batch
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

T = TypeVar("T")

PARTITIONS = 6
SHARDS = 3
NODES = 2
CHECK_MS = 10_000
LONG_S = 3 * (ANSWERS_KEPT_MS + DELAY_MS) / 1000

parts = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=6)
shards = st.integers(0, SHARDS - 1)
late_owners = st.sets(shards, max_size=SHARDS - 1)
limits = st.one_of(st.just(-1), st.integers(0, 5))


class FileLives(RuleBasedStateMachine):
    """All background work runs, while clients write and delete, and processes and backends fail."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        loop = self.runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        store_delays = random.Random(0)
        loop.executor_delay_s = lambda: store_delays.choice([0.0, 0.0, 0.0, 0.01, 0.4])
        self.objects = 0
        self.topics = 1
        self.late: list[tuple[int, CommitFile]] = []
        self.committed: set[str] = set()
        self.next_offsets = dict.fromkeys(range(PARTITIONS), 0)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def topic(self) -> bytes:
        return uuid.UUID(int=self.topics + 1).bytes

    @initialize()
    def begin(self) -> None:
        async def begin() -> None:
            schedule = RetentionSchedule(initial_delay_ms=0, interval_ms=CHECK_MS)
            clock = VirtualClock(asyncio.get_running_loop())
            self.life = FileLife(SHARDS, nodes=NODES, schedule=schedule, clock=clock)
            await self.life.start()
            self.life.run_in_background()
            await self.life.create_topic(PARTITIONS, self.topic)

        self.do(begin())

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.do(self.end())
        self.runner.close()

    async def end(self) -> None:
        """Once all is over and the scan for orphans has been there, nothing is left but what can be read."""
        if self.objects % 2:
            await self.life.delete_topic(self.topic)
        await asyncio.sleep(LONG_S)
        for index, request in self.late[self.objects // 2 % 2 :: 2]:
            self.count(request, await self.life.commit(index, request))
        await self.life.post.deliver_late()
        await asyncio.sleep(LONG_S)
        await self.life.raise_horizons()
        await asyncio.sleep(LONG_S)
        for index, request in self.late:
            self.count(request, await self.life.commit(index, request))
        await asyncio.sleep(LONG_S)
        live = {run.object_key for run in await self.life.live_runs()}
        assert self.life.stored & self.committed == live
        for index in range(SHARDS):
            known = await self.life.known_files(index)
            assert known["known"] == known["live"] | known["dead"]
            assert known["known"] <= live
            rows = await self.life.rows(index)
            assert rows["trims"] == []
            for process in self.life.processes:
                assert await self.life.rows(index, process) == rows
        await self.life.restart(with_empty_stores=True)
        await self.life.trim()
        for index in range(SHARDS):
            assert (await self.life.known_files(index))["known"] <= live
        await self.life.__aexit__()

    # --- what clients do -----------------------------------------------------------------------------------------

    def next_key(self) -> str:
        self.objects += 1
        return object_key("wal", self.life.clock.now_ms(), uuid.UUID(int=self.objects))

    def commit(self, index: int, request: CommitFile) -> None:
        self.count(request, self.do(self.life.commit(index, request)))

    def count(self, request: CommitFile, results: list[BatchResult]) -> None:
        """Remember what was appended, if this is the first answer."""
        if results[0].error is not ErrorCode.KAFKA_STORAGE_ERROR:
            self.committed.add(request.object_key)
        for one, result in zip(request.batches, results, strict=True):
            if result.error is ErrorCode.NONE and one.topic_id == self.topic:
                self.next_offsets[one.partition] += 1

    @rule(objects=st.lists(st.tuples(parts, late_owners), min_size=1, max_size=4), back=st.integers(-100, 100))
    def produce(self, objects: list[tuple[list[int], set[int]]], back: int) -> None:
        """The commit with some of an object's owners comes later, or never."""
        max_timestamp = self.life.clock.now_ms() + back * 1000
        for some, late in objects:
            batches = [batch(part, topic=self.topic, max_timestamp=max_timestamp) for part in some]
            for index, request in self.life.upload(self.next_key(), *batches).items():
                if index in late:
                    self.late.append((index, request))
                else:
                    self.commit(index, request)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def a_commit_comes_late(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, len(self.late) - 1))
        self.commit(*self.late.pop(position))

    @rule(some=parts, late=late_owners, seconds=st.sampled_from([1, 61, 700]))
    def an_object_dies_where_it_is_known_before_others_learn_of_it(
        self, some: list[int], late: set[int], seconds: float
    ) -> None:
        requests = self.life.upload(self.next_key(), *(batch(part, topic=self.topic) for part in some))
        for index, request in requests.items():
            if index not in late:
                self.commit(index, request)
                for partition in range(index, PARTITIONS, SHARDS):
                    self.do(self.life.delete_records(-1, partition, self.topic))
        self.do(asyncio.sleep(seconds))
        for index, request in requests.items():
            if index in late:
                self.commit(index, request)

    @rule(late=st.booleans())
    def produce_to_no_topic(self, late: bool) -> None:
        batches = [batch(partition, topic=b"-" * 16) for partition in (1, 0)]
        if not late:
            batches.append(batch(2, topic=self.topic))
        for index, request in self.life.upload(self.next_key(), *batches).items():
            self.commit(index, request)

    @rule(partition=st.integers(0, PARTITIONS - 1), back=st.integers(0, 3))
    def delete_records(self, partition: int, back: int) -> None:
        offset = max(0, self.next_offsets[partition] - back)
        self.do(self.life.delete_records(offset, partition, self.topic))

    @rule()
    def delete_the_topic_and_create_another(self) -> None:
        async def again() -> None:
            await self.life.delete_topic(self.topic)
            self.topics += 1
            await self.life.create_topic(PARTITIONS, self.topic)

        self.do(again())
        self.next_offsets = dict.fromkeys(range(PARTITIONS), 0)

    @rule(batches=limits, seconds=limits)
    def change_retention(self, batches: int, seconds: int) -> None:
        self.life.rules = RetentionRules(
            retention_bytes=batches * BATCH_BYTES if batches >= 0 else -1,
            retention_ms=seconds * 20_000 if seconds >= 0 else -1,
        )

    @rule()
    def turn_retention_off(self) -> None:
        self.life.rules = NEVER

    # --- what happens --------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 5, 61, 700]))
    def time_passes(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @rule(empty=st.booleans())
    def restart(self, empty: bool) -> None:
        async def again() -> None:
            await self.life.restart(with_empty_stores=empty)
            self.life.run_in_background()

        self.do(again())

    @rule(node=st.integers(0, NODES - 1), empty=st.booleans())
    def a_node_dies_and_is_started_again(self, node: int, empty: bool) -> None:
        async def again() -> None:
            process = self.life.processes[node]
            await process.restart(with_empty_stores=empty)
            process.maintenance.start()

        self.do(again())

    @rule(node=st.integers(0, NODES - 1), seconds=st.sampled_from([0, 5, 700]))
    def a_node_is_down_for_a_while_and_the_others_lead(self, node: int, seconds: float) -> None:
        async def fail_over() -> None:
            process = self.life.processes[node]
            other = self.life.processes[(node + 1) % NODES]
            await process.kill()
            for index in range(SHARDS):
                await self.life.let_lead(other, index)
            await asyncio.sleep(seconds)
            await process.start()
            process.maintenance.start()

        self.do(fail_over())

    @rule(shard=shards, node=st.integers(0, NODES - 1))
    def another_node_leads(self, shard: int, node: int) -> None:
        self.do(self.life.let_lead(self.life.processes[node], shard))

    @rule(losses=st.lists(st.sampled_from(Loss), min_size=1, max_size=3))
    def hand_overs_get_lost(self, losses: list[Loss]) -> None:
        self.life.post.losses += losses

    @precondition(lambda self: self.life.post.late)
    @rule()
    def hand_overs_arrive_late(self) -> None:
        self.do(self.life.post.deliver_late())

    @rule(shard=shards, seconds=st.sampled_from([5, 700]))
    def a_shard_cannot_be_reached_for_a_while(self, shard: int, seconds: float) -> None:
        async def fail() -> None:
            self.life.post.unreachable.add(shard)
            await asyncio.sleep(seconds)
            self.life.post.unreachable.discard(shard)

        self.do(fail())

    @rule(only=shards, seconds=st.sampled_from([31, 700]), everywhere=st.booleans())
    def horizons_rise(self, only: int, seconds: float, everywhere: bool) -> None:
        async def rise() -> None:
            await asyncio.sleep(seconds)
            if everywhere:
                await self.life.raise_horizons()
            else:
                await self.life.nodes[only].shard.raise_horizon(self.life.clock.now_ms() - HORIZON_AGE_MS)

        self.do(rise())

    @rule(shard=shards, fault=st.sampled_from(AppendFault), seconds=st.sampled_from([1, 100]))
    def the_log_fails_once(self, shard: int, fault: AppendFault, seconds: float) -> None:
        """Whoever appends next, be it the background, has no answer."""

        async def fail() -> None:
            node = self.life.nodes[shard]
            self.life.shared.fail_next_append(fault, shard=node.shard_id)
            with contextlib.suppress(CoordinatorError):
                await node.shard.barrier()
            await asyncio.sleep(seconds)
            await node.shard.until_leading()

        self.do(fail())

    @rule(operation=st.sampled_from([Operation.DELETE, Operation.GET]), takes_effect=st.booleans())
    def the_object_store_fails_for_a_while(self, operation: Operation, takes_effect: bool) -> None:
        async def fail() -> None:
            self.life.objects.fail_next(operation, takes_effect=takes_effect)
            with self.life.objects.failing(operation):
                await asyncio.sleep(200)

        self.do(fail())

    @rule(shard=shards, seconds=st.sampled_from([1, 100]))
    def a_store_of_rows_fails_for_a_while(self, shard: int, seconds: float) -> None:
        async def fail() -> None:
            with self.life.nodes[shard].failing_store():
                await asyncio.sleep(seconds)

        self.do(fail())

    @rule()
    def a_round_of_deletion_comes_at_once(self) -> None:
        async def delete() -> None:
            with contextlib.suppress(WalObjectStoreError):
                await self.life.delete_dead()

        self.do(delete())

    @invariant()
    def what_can_be_read_is_stored(self) -> None:
        if hasattr(self, "life"):
            live = {run.object_key for run in self.do(self.life.live_runs())}
            assert live <= self.life.stored, live - self.life.stored

    @invariant()
    def partitions_end_where_they_should(self) -> None:
        if hasattr(self, "life"):
            for node in self.life.nodes:
                for partition, head in node.shard.heads().items():
                    assert head.next_offset == self.next_offsets[partition.partition]
                    assert 0 <= head.log_start_offset <= head.next_offset
                    assert (head.size_bytes == 0) == (head.log_start_offset == head.next_offset)


TestFileLives = FileLives.TestCase
TestFileLives.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
