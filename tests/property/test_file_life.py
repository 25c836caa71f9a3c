"""Objects of two shards live and die while nodes do too: what can be read is stored, and in the end nothing else is."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.files.deletion import ANSWERS_KEPT_MS
from diskless_core.files.retention import RetentionRules
from diskless_core.files.retention_worker import RetentionSchedule
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.testing.fakes.log import AppendFault
from diskless_core.testing.fakes.objects import Operation
from tests.support.file_life import DELAY_MS, NEVER, FileLife
from tests.support.shards import BATCH_BYTES, batch
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

T = TypeVar("T")

PARTITIONS = 4
CHECK_MS = 10_000
LONG_S = 10 * (ANSWERS_KEPT_MS + DELAY_MS) / 1000

parts = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=6)
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
        self.halves: set[str] = set()
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
            self.life = FileLife(2, schedule=schedule, clock=clock)
            await self.life.start()
            self.life.run_in_background()
            await self.life.create_topic(PARTITIONS, self.topic)

        self.do(begin())

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.do(self.end())
        self.runner.close()

    async def end(self) -> None:
        await asyncio.sleep(LONG_S)
        live = {run.object_key for run in await self.life.live_runs()}
        assert self.life.stored - self.halves == live - self.halves
        for index in (0, 1):
            assert (await self.life.known_files(index))["known"] - self.halves <= live
            assert (await self.life.rows(index))["trims"] == []
        await self.life.__aexit__()

    # --- what clients do -----------------------------------------------------------------------------------------

    def next_key(self) -> str:
        self.objects += 1
        return f"object-{self.objects:03}"

    @rule(parts=parts, back=st.integers(-100, 100))
    def produce(self, parts: list[int], back: int) -> None:
        max_timestamp = self.life.clock.now_ms() + back * 1000
        batches = [batch(part, topic=self.topic, max_timestamp=max_timestamp) for part in parts]
        self.do(self.life.put(self.next_key(), *batches))
        for part in parts:
            self.next_offsets[part] += 1

    @rule()
    def produce_to_no_topic(self) -> None:
        self.do(self.life.put(self.next_key(), batch(0, topic=b"-" * 16), batch(1, topic=b"-" * 16)))

    @rule(shard=st.sampled_from((0, 1)))
    def produce_and_die_before_the_commit_with_the_other_shard(self, shard: int) -> None:
        key = self.next_key()
        self.halves.add(key)
        self.do(self.life.put_part(key, shard, (1, 0), batch(shard, topic=self.topic)))
        self.next_offsets[shard] += 1
        self.restart(empty=False)

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

    @rule(shard=st.sampled_from((0, 1)), fault=st.sampled_from(AppendFault), seconds=st.sampled_from([1, 100]))
    def the_log_fails_once(self, shard: int, fault: AppendFault, seconds: float) -> None:
        """Whoever appends next, be it the background, has no answer."""

        async def fail() -> None:
            node = self.life.nodes[shard]
            self.life.shared.fail_next_append(fault, shard=node.shard_id)
            with contextlib.suppress(CoordinatorError):
                await node.shard.barrier()
            await asyncio.sleep(seconds)
            await node.shard.shard.until_leading()

        self.do(fail())

    @rule(operation=st.sampled_from([Operation.DELETE, Operation.GET]), takes_effect=st.booleans())
    def the_object_store_fails_for_a_while(self, operation: Operation, takes_effect: bool) -> None:
        async def fail() -> None:
            self.life.objects.fail_next(operation, takes_effect=takes_effect)
            with self.life.objects.failing(operation):
                await asyncio.sleep(200)

        self.do(fail())

    @rule(shard=st.sampled_from((0, 1)), seconds=st.sampled_from([1, 100]))
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
