"""The rules of a shard's state machine that are commands: all of KIP-1164's, and those on the life of objects."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from diskless_core.diskless.commands import BatchResult, CommitFile, HandOver, PartitionKey
from diskless_core.diskless.operations import HORIZON_AGE_MS
from diskless_core.diskless.producer_expiry import ExpirationRules, ProducerExpiry
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import FILES, GONE_FILES, PRODUCERS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.testing.fakes.log import AppendFault
from diskless_core.wal.runs import Run
from tests.support.shard_checks import assert_found
from tests.support.shard_cluster import Answered, ReplicaNode
from tests.support.shard_machine import NODES, Doom, ShardMachine, dooms
from tests.support.shard_requests import Wanted, owner_lists, wanted_batches
from tests.support.shards import EXPIRATION_MS, row_of

some_batches = st.lists(wanted_batches, min_size=1, max_size=6)
faults = st.lists(st.sampled_from(AppendFault), max_size=2)


def commit_of_this(request: CommitFile) -> Callable[[DisklessShard], Coroutine[Any, Any, list[BatchResult]]]:
    return lambda shard: shard.commit_file(request)


class ShardCommands(ShardMachine):
    """What clients and the rest of the broker ask."""

    @initialize()
    def begin(self) -> None:
        self.do(self.cluster.start())
        self.create_topic(2, None)

    # --- topics --------------------------------------------------------------------------------------------------

    @rule(partitions=st.integers(1, 3), doom=dooms)
    def create_topic(self, partitions: int, doom: Doom | None) -> None:
        self.create_partitions(self.requests.new_topic(), partitions, doom)

    @rule(which=st.integers(0, 2), partitions=st.integers(1, 3), doom=dooms)
    def add_partitions(self, which: int, partitions: int, doom: Doom | None) -> None:
        """Those that are there already stay."""
        topic_id = self.requests.topic(which)
        if topic_id in self.model.topics:
            self.create_partitions(topic_id, partitions, doom)

    def create_partitions(self, topic_id: bytes, partitions: int, doom: Doom | None) -> None:
        indexes = range(partitions)
        self.ask(lambda shard: shard.create_partitions(uuid.UUID(bytes=topic_id), "t", indexes), doom)
        self.model.create_partitions(topic_id, indexes)

    @precondition(lambda self: len(self.model.topics) > 1)
    @rule(which=st.integers(0, 5), doom=dooms)
    def delete_topic(self, which: int, doom: Doom | None) -> None:
        topic_id = list(self.model.topics)[which % len(self.model.topics)]
        answered = self.ask(lambda shard: shard.delete_topic(uuid.UUID(bytes=topic_id)), doom)
        expected = self.model.delete_topic(topic_id)
        assert answered.value is expected or (answered.repeated and answered.value is ErrorCode.UNKNOWN_TOPIC_ID)

    @rule()
    def delete_a_topic_that_is_not_there(self) -> None:
        assert self.ask(lambda shard: shard.delete_topic(uuid.UUID(int=1))).value is ErrorCode.UNKNOWN_TOPIC_ID

    # --- commits -------------------------------------------------------------------------------------------------

    def request(self, wanted: list[Wanted], owner_ids: tuple[int, ...] = (0,), age_ms: int = 0) -> CommitFile:
        key = self.requests.new_key(self.now_ms - age_ms)
        return self.requests.commit(self.model, wanted, key, owner_ids)

    @rule(
        wanted=some_batches,
        owners=owner_lists,
        age_ms=st.sampled_from([0, 0, 0, 100_000, 1_000_000]),
        planned=faults,
        doom=dooms,
    )
    def commit(
        self,
        wanted: list[Wanted],
        owners: tuple[int, ...],
        age_ms: int,
        planned: list[AppendFault],
        doom: Doom | None,
    ) -> None:
        for fault in planned:
            self.cluster.shared.fail_next_append(fault)
        request = self.request(wanted, owners, age_ms)
        self.expect(request, self.ask(lambda shard: shard.commit_file(request), doom))

    @precondition(lambda self: self.model.files)
    @rule(which=st.integers(0, 50), other=st.booleans(), doom=dooms)
    def send_again(self, which: int, other: bool, doom: Doom | None) -> None:
        request, _ = list(self.model.files.values())[which % len(self.model.files)]
        if other:
            request = replace(request, file_size=request.file_size + 1)
        self.expect(request, self.ask(lambda shard: shard.commit_file(request), doom))

    @rule(wanted=some_batches, silence=st.sampled_from([0.0, 0.6, 2.0]), doom=dooms)
    def producers_are_forgotten(self, wanted: list[Wanted], silence: float, doom: Doom | None) -> None:
        """Those that were silent for too long, and those of deleted topics; then some write again."""
        self.do(asyncio.sleep(silence * EXPIRATION_MS / 1000))
        asked_ms = {node_id: node.clock.now_ms() for node_id, node in self.cluster.nodes.items()}

        async def forget(shard: DisklessShard) -> set[Any]:
            rules = ExpirationRules(expiration_ms=EXPIRATION_MS, check_interval_ms=EXPIRATION_MS)
            await ProducerExpiry(shard, rules, shard._services.clock).look()
            await shard.barrier()
            return {key for key, _ in shard.state.rows(PRODUCERS)}

        answered = self.ask(forget, doom)
        latest_ms = max(node.clock.now_ms() for node in self.cluster.nodes.values())
        self.model.producers_are_left(answered.value, asked_ms[answered.node.node_id], latest_ms)
        self.commit(wanted, (0,), 0, [], None)

    @rule(wanted=some_batches, apart_s=st.lists(st.sampled_from([0.0, 0.1, 0.7]), min_size=1, max_size=3))
    def send_the_same_several_times_at_once(self, wanted: list[Wanted], apart_s: list[float]) -> None:
        request = self.request(wanted)

        async def several() -> list[Answered]:
            answers = []
            for seconds in (0.0, *apart_s):
                await asyncio.sleep(seconds)
                answers.append(asyncio.create_task(self.cluster.until_answered(commit_of_this(request))))
            return await asyncio.gather(*answers)

        answers = self.do(several())
        for answered in answers:
            self.expect(request, answered)

    @rule(wanted=some_batches, together=st.lists(some_batches, min_size=1, max_size=4))
    def commit_many_at_once(self, wanted: list[Wanted], together: list[list[Wanted]]) -> None:
        """In whatever order the shard takes them, that is the order in which they count."""
        requests = [self.request(one) for one in (wanted, *together)]

        async def all_at_once() -> tuple[list[Any], list[str]]:
            leader = await self.cluster.quiet_down()
            leader.store.failing = False
            await leader.shard.flush()  # there is room for all of them
            before = len(leader.witness.judged)
            asks = [leader.ask(commit_of_this(request), request.object_key) for request in requests]
            return await asyncio.gather(*asks, return_exceptions=True), leader.witness.judged[before:]

        self.set_unreadable(False)
        outcomes, judged = self.do(all_at_once())
        assert sorted(judged) == sorted(request.object_key for request in requests)
        for request, outcome in sorted(
            zip(requests, outcomes, strict=True), key=lambda one: judged.index(one[0].object_key)
        ):
            assert isinstance(outcome, list), outcome
            self.expect_results(request, outcome)

    def expect(self, request: CommitFile, answered: Answered) -> None:
        self.expect_results(request, answered.value)

    def expect_results(self, request: CommitFile, results: list[BatchResult]) -> None:
        """The answer is the model's at the time that the shard says it was committed."""

        async def committed(shard: DisklessShard) -> Any:
            await shard.barrier()
            return await row_of(shard, FILES, (request.object_key,))

        state = self.ask(committed).value
        created_ms = self.requests.created_ms[request.object_key]
        expected = self.model.commit(request, state.committed_at if state is not None else 0, created_ms)
        if [one.error for one in expected] == [ErrorCode.KAFKA_STORAGE_ERROR] * len(results):
            assert [one.error for one in results] == [one.error for one in expected]
        else:
            assert results == expected, request

    # --- deletion and reading --------------------------------------------------------------------------------------

    def partition(self, topic: int, partition: int) -> PartitionKey:
        return PartitionKey(self.requests.topic(topic), partition)

    def offset(self, key: PartitionKey, back: int) -> int:
        partition = self.model.partitions().get(key)
        return back if partition is None else partition.next_offset - back

    @rule(
        topic=st.integers(0, 2),
        partition=st.integers(0, 2),
        back=st.integers(-1, 8),
        everything=st.booleans(),
        doom=dooms,
    )
    def delete_records(self, topic: int, partition: int, back: int, everything: bool, doom: Doom | None) -> None:
        key = self.partition(topic, partition)
        offset = -1 if everything and back < 2 else self.offset(key, back)
        answered = self.ask(lambda shard: shard.delete_records(key, offset), doom)
        assert answered.value == self.model.delete_records(key, offset)

    @rule(
        topic=st.integers(0, 2),
        partition=st.integers(0, 2),
        runs=st.integers(1, 3),
        late=st.booleans(),
        twice=st.booleans(),
        doom=dooms,
    )
    def tier(self, topic: int, partition: int, runs: int, late: bool, twice: bool, doom: Doom | None) -> None:
        """Segments take over the first runs, unless another compaction, or a deletion, was quicker."""
        key = self.partition(topic, partition)
        known = self.model.partitions().get(key)
        self.set_unreadable(False)
        if known is None or not known.in_objects:
            return
        expected = known.local_start

        async def plan(shard: DisklessShard) -> list[Run]:
            await shard.barrier()
            return list(await shard.runs_from(key, expected))[:runs]

        planned = self.ask(plan).value
        segment = TieredSegment(
            self.requests.new_segment_id(),
            planned[0].base_offset,
            planned[-1].last_offset,
            sum(run.byte_size for run in planned),
        )
        if late:
            self.delete_records(topic, partition, known.next_offset - expected - 1, False, None)
        for _ in range(1 + twice):
            answered = self.ask(lambda shard: shard.tier(key, segment, expected=expected), doom)
            assert answered.value is (not late)
        if not late:
            known.tier(segment)

    @rule(topic=st.integers(0, 2), partition=st.integers(0, 2), back=st.integers(-1, 12), pages=st.integers(1, 1300))
    def find(self, topic: int, partition: int, back: int, pages: int) -> None:
        key = self.partition(topic, partition)
        offset = self.offset(key, back)

        async def strictly(shard: DisklessShard) -> Any:
            await shard.barrier()
            return await shard.find(key, offset, pages * 1000)

        assert_found(self.ask(strictly).value, self.model.partitions().get(key), offset, pages * 1000)

    # --- objects -------------------------------------------------------------------------------------------------

    def some_keys(self, which: list[int], keys: set[str]) -> list[str]:
        known = sorted(keys)
        return sorted({known[one % len(known)] for one in which}) if known else []

    @rule(which=st.lists(st.integers(0, 30), max_size=4))
    def describe_files(self, which: list[int]) -> None:
        keys = [*self.some_keys(which, set(self.requests.created_ms)), "never"]
        found = self.ask(lambda shard: shard.describe_files(keys)).value
        assert list(found) == [key for key in keys if key in self.model.known_files]

    @rule()
    def ask_for_the_oldest_file(self) -> None:
        """Where all is trimmed, no dead object counts."""
        for node in self.cluster.nodes.values():
            node.store.failing = node.store.unreadable = False

        async def trim() -> ReplicaNode:
            leader = await self.cluster.leading()
            await self.work(leader, lambda node: node.trim())
            return leader

        trimmed = self.do(trim())
        answered = self.ask(lambda shard: shard.oldest_file_ms())
        live = [self.requests.created_ms[key] for key in self.model.live_files]
        if answered.node is trimmed:
            assert answered.value == min(live, default=None)
        else:
            assert not live or answered.value <= min(live)

    @rule(age_ms=st.sampled_from([0, 50_000, 300_000]), doom=dooms)
    def raise_horizon(self, age_ms: int, doom: Doom | None) -> None:
        slowest_ms = min(node.clock.now_ms() for node in self.cluster.nodes.values())
        horizon_ms = slowest_ms - HORIZON_AGE_MS - age_ms
        self.ask(lambda shard: shard.raise_horizon(horizon_ms), doom)
        self.model.raise_horizon(horizon_ms)

    @rule(which=st.lists(st.integers(0, 30), max_size=3), unknown=st.booleans(), doom=dooms)
    def hand_over(self, which: list[int], unknown: bool, doom: Doom | None) -> None:
        """Another shard is through with objects: this one may have them live, dead, or not at all."""
        keys = self.some_keys(which, self.model.known_files)
        if unknown:
            keys.append(self.requests.new_key(self.now_ms))
        files = [
            HandOver(key, self.model.files[key][0].owner_ids if key in self.model.files else (1, 0), 1, self.now_ms)
            for key in keys
        ]
        self.ask(lambda shard: shard.hand_over(files), doom)
        for key in keys:
            self.model.hand_over(key)

    @rule(wanted=some_batches, again=st.booleans())
    def commit_what_was_handed_over_before(self, wanted: list[Wanted], again: bool) -> None:
        """The object may be gone by now: its batches are refused for good."""
        if not (self.model.tombstones and again):
            self.hand_over([], True, None)
        request = self.requests.commit(self.model, wanted, min(self.model.tombstones), (1, 0))
        self.expect(request, self.ask(lambda shard: shard.commit_file(request)))

    @rule(which=st.lists(st.integers(0, 30), min_size=1, max_size=4), deleted=st.booleans(), doom=dooms)
    def part_from_files(self, which: list[int], deleted: bool, doom: Doom | None) -> None:
        """Only those go that the leader has found dead by trimming."""
        keys = self.some_keys(which, self.model.known_files)

        async def part(shard: DisklessShard) -> set[str]:
            if deleted:
                await shard.files_deleted(keys)
            else:
                await shard.files_handed_over(keys, 1)
            await shard.barrier()
            return {key for key in keys if await row_of(shard, GONE_FILES, (key,)) is not None}

        gone = self.ask(part, doom).value
        assert gone <= self.model.dead_files
        assert gone >= set(keys) & self.model.gone
        self.model.gone |= gone

    @rule(which=st.lists(st.integers(0, 30), min_size=1, max_size=4), doom=dooms)
    def forget_files(self, which: list[int], doom: Doom | None) -> None:
        keys = self.some_keys(which, self.model.known_files)
        self.ask(lambda shard: shard.forget_files(keys), doom)
        for key in keys:
            self.model.forget(key)

    @rule(
        topic=st.integers(0, 2), partition=st.integers(0, 2), which=st.lists(st.integers(0, 30), min_size=1, max_size=4)
    )
    def objects_die_and_are_forgotten(self, topic: int, partition: int, which: list[int]) -> None:
        self.delete_records(topic, partition, 0, True, None)

        async def trim() -> None:
            leader = await self.cluster.leading()
            await self.work(leader, lambda node: node.trim())

        self.do(trim())
        self.part_from_files(which, True, None)
        for key in self.some_keys(which, self.model.gone):
            self.ask(lambda shard, key=key: shard.forget_files([key]))
            self.model.forget(key)

    @rule(node_id=st.sampled_from(NODES), pages=st.sampled_from([1, 1, 2, None]), doom=dooms)
    def trim(self, node_id: int, pages: int | None, doom: Doom | None) -> None:
        self.do(self.work(self.cluster.nodes[node_id], lambda node: node.trim(pages), doom))
