"""Two replicas of a shard go through all that can happen to them, and answer as a model does that knows no failures."""

from __future__ import annotations

import asyncio
import copy
import random
import uuid
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from diskless_core.coordinator import entries
from diskless_core.coordinator.commands import BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.coordinator.entries import Claim
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.records import PartitionCreated, encode
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import AppendFault, SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.commit_model import SEQUENCES, CommitModel, PartitionModel, assert_runs_are
from tests.support.shards import EXPIRATION_MS, SHARD_ID, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

T = TypeVar("T")

FOREIGN_NODE = 9
PATIENCE_S = 1000
"""Of virtual time: nothing that clients ask may take longer, whatever goes wrong meanwhile."""

NODES = (1, 2)
LAST_SEQUENCE = SEQUENCES - 1

kinds = st.sampled_from(
    ["plain", "next", "next", "next", "repeat", "gap", "new epoch", "bad epoch", "old epoch", "wrap"]
)
specs = st.tuples(
    st.integers(0, 2),
    st.integers(0, 2),
    kinds,
    st.integers(1, 3),
    st.sampled_from([50, 50, 600_000]),
    st.sampled_from([0, 0, 1]),
    st.integers(0, 6),
)
faults = st.lists(st.sampled_from(AppendFault), max_size=2)


class Shards(RuleBasedStateMachine):
    """Commits are sent until they are answered, as the broker does; meanwhile anything may go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        loop = self.runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        store_delays = random.Random(0)
        loop.executor_delay_s = lambda: store_delays.choice([0.0, 0.0, 0.01, 0.4])
        self.clock = VirtualClock(loop)
        self.shared = SharedLog()
        self.nodes = {node_id: ShardNode(self.shared, self.clock, node_id) for node_id in NODES}
        self.kept: dict[int, list[Any]] = {node_id: [] for node_id in NODES}
        self.leader = 1
        self.model = CommitModel(EXPIRATION_MS)
        self.objects = 0
        self.topic_ids: list[bytes] = []

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asyncio.wait_for(work, PATIENCE_S))

    def teardown(self) -> None:
        async def end() -> None:
            for node in self.nodes.values():
                node.store.failing = False
                await node.stop()

        self.do(end())
        self.runner.close()

    @initialize()
    def begin(self) -> None:
        async def start() -> None:
            self.shared.set_leader(SHARD_ID, self.leader)
            for node in self.nodes.values():
                await node.start(lead=node.node_id == self.leader)

        self.do(start())
        self.create_topic(2)

    # --- what clients do -----------------------------------------------------------------------------------------

    async def until_answered(self, ask: Any) -> Any:
        """Ask the node that should lead, and after an error the other one, until one answers."""
        turn = self.leader
        while True:
            try:
                return await ask(self.nodes[turn].shard)
            except CoordinatorError:
                turn = next(node_id for node_id in NODES if node_id != turn)
                await asyncio.sleep(0.05)

    @rule(partitions=st.integers(1, 3))
    def create_topic(self, partitions: int) -> None:
        topic_id = uuid.UUID(int=len(self.topic_ids) + 2)
        self.topic_ids.append(topic_id.bytes)
        indexes = range(partitions)
        self.do(self.until_answered(lambda shard: shard.create_partitions(topic_id, "t", indexes)))
        self.model.topics[topic_id.bytes] = {index: PartitionModel() for index in indexes}

    @precondition(lambda self: len(self.model.topics) > 1)
    @rule(which=st.integers(0, 5))
    def delete_topic(self, which: int) -> None:
        topic_id = list(self.model.topics)[which % len(self.model.topics)]
        self.do(self.until_answered(lambda shard: shard.delete_topic(uuid.UUID(bytes=topic_id))))
        del self.model.topics[topic_id]

    @rule(wanted=st.lists(specs, min_size=1, max_size=6), planned=faults)
    def commit(self, wanted: list[Any], planned: list[AppendFault]) -> None:
        for fault in planned:
            self.shared.fail_next_append(fault)
        request = self.request(wanted)
        before = self.clock.now_ms()
        results = self.do(self.until_answered(lambda shard: shard.commit_file(request)))
        self.expect(request, results, before)

    @precondition(lambda self: self.model.files)
    @rule(which=st.integers(0, 50), other=st.booleans())
    def send_again(self, which: int, other: bool) -> None:
        request, _ = list(self.model.files.values())[which % len(self.model.files)]
        if other:
            request = replace(request, file_size=request.file_size + 1)
        self.expect(request, self.do(self.until_answered(lambda shard: shard.commit_file(request))), 0)

    @rule(wanted=st.lists(specs, min_size=2, max_size=6))
    def commit_at_once_what_shares_no_partition(self, wanted: list[Any]) -> None:
        by_partition: dict[PartitionKey, list[CommitBatch]] = {}
        for one in self.request(wanted).batches:
            by_partition.setdefault(PartitionKey(one.topic_id, one.partition), []).append(one)
        requests = [commit_of(f"{self.next_key()}", *batches) for batches in by_partition.values()]

        async def all_at_once() -> list[list[BatchResult]]:
            asks = [lambda shard, request=request: shard.commit_file(request) for request in requests]
            return await asyncio.gather(*map(self.until_answered, asks))

        before = self.clock.now_ms()
        for request, results in zip(requests, self.do(all_at_once()), strict=True):
            self.expect(request, results, before)

    def expect(self, request: CommitFile, results: list[BatchResult], before: int) -> None:
        """The answer is the model's at the time of the commit, which a refusal does not tell exactly."""
        times = {result.append_time for result in results if result.append_time >= before} or {
            before,
            self.clock.now_ms(),
        }
        answers = []
        for now_ms in sorted(times):
            model = copy.deepcopy(self.model)
            answers.append(model.commit(request, now_ms))
            if answers[-1] == results:
                self.model = model
                return
        raise AssertionError(f"{request}: answered {results}, expected one of {answers}")

    def next_key(self) -> str:
        self.objects += 1
        return f"object-{self.objects}"

    def request(self, wanted: list[Any]) -> CommitFile:
        batches: list[CommitBatch] = []
        for topic, partition, kind, count, size, timestamp_type, back in wanted:
            topic_id = self.topic_ids[-1 - topic % len(self.topic_ids)]
            batches.append(
                batch(
                    partition,
                    topic=topic_id,
                    size=size,
                    count=count,
                    producer=self.producer(batches, topic_id, partition, kind, back),
                    max_timestamp=back * 10,
                    timestamp_type=timestamp_type,
                )
            )
            if kind == "repeat":
                batches[-1] = self.repeated(batches[-1], batches[:-1], back)
        return commit_of(self.next_key(), *batches)

    def sent(self, batches: list[CommitBatch], topic_id: bytes, partition: int) -> list[CommitBatch]:
        known = self.model.topics.get(topic_id, {}).get(partition)
        earlier = [one.batch for one in known.batches] if known is not None else []
        now = [one for one in batches if (one.topic_id, one.partition) == (topic_id, partition)]
        return [one for one in (*earlier, *now) if one.producer_id == 7]

    def producer(
        self, batches: list[CommitBatch], topic_id: bytes, partition: int, kind: str, back: int
    ) -> tuple[int, int, int] | None:
        sent = self.sent(batches, topic_id, partition)
        epoch = sent[-1].producer_epoch if sent else 0
        following = (sent[-1].last_sequence + 1) % SEQUENCES if sent else 0
        match kind:
            case "plain" | "repeat":
                return None
            case "next":
                return 7, epoch, following
            case "gap":
                return 7, epoch, (following + 1 + back) % SEQUENCES
            case "new epoch":
                return 7, epoch + 1, 0
            case "bad epoch":
                return 7, epoch + 1, 5
            case "old epoch":
                return 7, max(0, epoch - 1), following
        return 7, epoch + 1 if sent else 0, 0 if sent else LAST_SEQUENCE - back

    def repeated(self, like: CommitBatch, batches: list[CommitBatch], back: int) -> CommitBatch:
        sent = self.sent(batches, like.topic_id, like.partition)
        if not sent:
            return like
        original = sent[-1 - back % len(sent)]
        return original._replace(size=like.size)

    # --- what happens to the nodes ---------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.01, 1, 1, 100]))
    def time_passes(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @rule(node_id=st.sampled_from(NODES))
    def keep_a_copy_of_the_store(self, node_id: int) -> None:
        self.kept[node_id].append(self.nodes[node_id].store.copy())

    @rule(node_id=st.sampled_from(NODES), failing=st.booleans())
    def the_store_fails_or_recovers(self, node_id: int, failing: bool) -> None:
        self.nodes[node_id].store.failing = failing

    @rule(node_id=st.sampled_from(NODES), clean=st.booleans(), back=st.integers(0, 4))
    def restart(self, node_id: int, clean: bool, back: int) -> None:
        """With the store as it is, at a state of earlier, or empty."""

        async def again() -> None:
            node = self.nodes[node_id]
            if clean and not node.store.failing:
                await node.stop()
            else:
                await node.kill()
            kept = [None, *self.kept[node_id], MemoryCoordinatorStore()]
            chosen = kept[back % len(kept)]
            if chosen is not None:
                node.store.memory = copy.deepcopy(chosen)
            node.store.failing = False
            await node.start(lead=node_id == self.leader)

        self.do(again())

    @rule(leader=st.sampled_from(NODES))
    def another_node_leads(self, leader: int) -> None:
        self.leader = leader
        self.shared.set_leader(SHARD_ID, leader)

    @rule(wanted=st.lists(specs, min_size=1, max_size=3))
    def a_commit_is_sent_while_both_nodes_are_told_to_lead(self, wanted: list[Any]) -> None:
        request = self.request(wanted)
        for node_id in NODES:
            self.shared.set_leader(SHARD_ID, node_id, seen_by=[node_id])
        before = self.clock.now_ms()
        self.do(asyncio.sleep(0.3))
        self.expect(request, self.do(self.until_answered(lambda shard: shard.commit_file(request))), before)

    @rule()
    def a_stranger_claims(self) -> None:
        claim = Claim(node_id=FOREIGN_NODE, claim_id=self.clock.new_uuid())
        self.shared.state(SHARD_ID).append(entries.encode_claim(claim, 0))

    @rule()
    def late_appends_land(self) -> None:
        self.shared.land_late_appends(SHARD_ID)

    @rule(which=st.integers(0, 100))
    def an_old_entry_lands_again(self, which: int) -> None:
        content = self.shared.content(SHARD_ID)
        entry = content[which % len(content)].data
        if not isinstance(entries.decode(entry), Claim):
            self.shared.state(SHARD_ID).append(entry)

    @rule(term=st.integers(-1, 50), sequence=st.integers(0, 3))
    def somebody_writes_under_a_term_that_is_over(self, term: int, sequence: int) -> None:
        record = encode(PartitionCreated(topic_id=b"?" * 16, name="never", partition=0))
        latest = max(one.offset for one in self.shared.content(SHARD_ID))
        claims = [one.offset for one in self.shared.content(SHARD_ID) if isinstance(entries.decode(one.data), Claim)]
        if term <= latest and term != claims[-1]:
            self.shared.state(SHARD_ID).append(entries.encode_entry(term, sequence, [record], 0))

    @rule(wanted=st.lists(specs, min_size=1, max_size=3), lands=st.booleans())
    def the_leader_is_killed_with_a_commit_under_way(self, wanted: list[Any], lands: bool) -> None:
        request = self.request(wanted)

        async def kill_meanwhile() -> None:
            await self.settle()
            node = self.nodes[self.leader]
            if lands:
                self.shared.hold_high_watermark(SHARD_ID)
            else:
                self.shared.fail_next_append(AppendFault.APPENDED_LATER)
            commit = asyncio.create_task(node.shard.commit_file(request))
            await asyncio.sleep(0.01)
            await node.kill()
            self.shared.release_high_watermark(SHARD_ID)
            await asyncio.gather(commit, return_exceptions=True)
            await node.start()

        self.do(kill_meanwhile())
        self.expect(request, self.do(self.until_answered(lambda shard: shard.commit_file(request))), 0)

    @rule(wanted=st.lists(specs, min_size=1, max_size=3))
    def the_leader_lags_and_is_deposed_with_a_commit_under_way(self, wanted: list[Any]) -> None:
        request = self.request(wanted)

        async def depose() -> BaseException | list[BatchResult]:
            await self.settle()
            old, new = self.leader, next(node_id for node_id in NODES if node_id != self.leader)
            self.shared.pause_reads(old)
            self.shared.set_leader(SHARD_ID, old, seen_by=[old])
            self.shared.set_leader(SHARD_ID, new, seen_by=[new])
            await self.nodes[new].shard.shard.until_leading()
            commit = asyncio.create_task(self.nodes[old].shard.commit_file(request))
            await asyncio.sleep(0.01)
            assert not commit.done(), "a deposed leader answered a commit"
            self.leader = new
            self.shared.set_leader(SHARD_ID, new)
            self.shared.resume_reads(old)
            [outcome] = await asyncio.gather(commit, return_exceptions=True)
            return outcome

        outcome = self.do(depose())
        assert isinstance(outcome, CoordinatorError)
        before = self.clock.now_ms()
        self.expect(request, self.do(self.until_answered(lambda shard: shard.commit_file(request))), before)

    # --- what holds whatever happened ------------------------------------------------------------------------------

    async def settle(self) -> None:
        """One leader, and everybody has read the log to its end."""
        self.shared.set_leader(SHARD_ID, self.leader)
        leading = self.nodes[self.leader].shard
        end = self.shared.state(SHARD_ID)
        while True:
            await leading.shard.until_leading()
            try:
                await leading.barrier()
            except CoordinatorError:
                continue
            if all(node.shard.shard.next_offset == end.end for node in self.nodes.values()):
                return
            await asyncio.sleep(0.01)

    @invariant()
    def every_replica_has_what_was_acknowledged_and_nothing_else(self) -> None:
        if self.topic_ids:
            self.do(self.compare())

    async def compare(self) -> None:
        await self.settle()
        partitions = self.model.partitions()
        for node in self.nodes.values():
            heads = node.shard.heads()
            assert {key: head.next_offset for key, head in heads.items()} == {
                key: partition.next_offset for key, partition in partitions.items()
            }
            for key, partition in partitions.items():
                assert_runs_are(await node.read_all(key), partition.batches)
                for one in partition.batches[-3:]:
                    found = await node.shard.find(key, one.base_offset + one.batch.record_count - 1, 1)
                    [run] = found.runs
                    assert run.base_offset <= one.base_offset <= run.last_offset
                beyond = await node.shard.find(key, partition.next_offset + 1, 1)
                assert beyond.error is ErrorCode.OFFSET_OUT_OF_RANGE
        first, second = (node.tables() for node in self.nodes.values())
        assert first == second


TestShards = Shards.TestCase
TestShards.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
