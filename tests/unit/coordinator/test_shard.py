"""One shard on the fake log and store: what it answers, and what is left of it after each way of going down."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Claim
from diskless_core.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadingError,
    NotCoordinatorError,
    OutcomeUnknownError,
)
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import FILES
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol import record_batch
from diskless_core.testing.fakes.log import AppendFault, FakeCoordinatorLog, SharedLog
from tests.support.commit_model import Appended, assert_runs_are
from tests.support.guarantees import guarantee
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of, row_of
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop, run

P0 = PartitionKey(TOPIC, 0)
TOPIC_ID = uuid.UUID(bytes=TOPIC)


async def started(shared: SharedLog | None = None, *, assignment: OffsetAssignment | None = None) -> ShardNode:
    node = ShardNode(shared or SharedLog(), VirtualClock(asyncio.get_running_loop()), assignment=assignment)
    await node.start()
    await node.shard.create_partitions(TOPIC_ID, "t", [0, 1])
    return node


def next_offset(node: ShardNode) -> int:
    head = node.shard.head(P0)
    assert head is not None
    return head.next_offset


def test_what_was_acknowledged_after_the_store_reached_beyond_the_claim_survives_a_kill() -> None:
    async def main() -> None:
        node = await started()
        await node.commit(commit_of("a", batch()))
        await node.kill()
        await node.start()
        await asyncio.sleep(2)  # what was replayed is flushed, together with the offset beyond the claim
        await node.commit(commit_of("b", batch()))
        await node.kill()
        await node.start()
        assert [run.object_key for run in await node.read_all(P0)] == ["a", "b"]
        await node.stop()

    run(main)


def test_a_follower_whose_store_reached_beyond_a_claim_follows_on_after_a_restart() -> None:
    async def main() -> None:
        leader = await started()
        follower = ShardNode(leader.shared, leader.clock, 2, candidate=False)
        await follower.start(lead=False)
        leader.shared.set_leader(SHARD_ID, 1)
        await leader.kill()
        await leader.start()
        await asyncio.sleep(2)
        await follower.stop()
        await follower.start(lead=False)
        await leader.commit(commit_of("a", batch()))
        await asyncio.sleep(0)
        assert next_offset(follower) == 1
        assert follower.tables() == leader.tables()
        for node in (leader, follower):
            await node.stop()

    run(main)


def test_a_store_that_is_ahead_of_the_log_is_kept_and_the_start_refused() -> None:
    async def main() -> None:
        node = await started()
        await node.commit(commit_of("a", batch()))
        await node.stop()
        log, node.shared = node.shared, SharedLog()
        with pytest.raises(CoordinatorError, match="the log was lost or cut"):
            await node.start()
        await node.stop()
        node.shared = log
        await node.start()
        assert next_offset(node) == 1
        await node.stop()

    run(main)


def test_a_log_that_is_gone_stays_empty_however_often_the_broker_is_started() -> None:
    async def main() -> None:
        node = await started()
        await node.commit(commit_of("a", batch()))
        await node.stop()
        node.shared = SharedLog()
        for _ in range(20):
            with pytest.raises(CoordinatorError, match="the log was lost or cut"):
                await node.start()
            await node.stop()
        assert node.shared.content(SHARD_ID) == []

    run(main)


def test_a_clean_stop_leaves_nothing_to_be_replayed() -> None:
    async def main() -> None:
        node = await started()
        await node.commit(commit_of("a", batch()))
        await node.stop()
        end = node.shared.state(SHARD_ID).end
        shard = await node.start(lead=False)
        assert shard.next_offset >= end
        assert next_offset(node) == 1
        await node.stop()

    run(main)


@guarantee(
    "Offsets",
    "The same commit sent again gets its first answer and changes nothing; another one of the same object is refused.",
)
@pytest.mark.parametrize(
    ("fault", "landed"),
    [
        (AppendFault.NOTHING_APPENDED, False),
        (AppendFault.FIRST_BATCH_APPENDED, True),
        (AppendFault.ALL_APPENDED, True),
        (AppendFault.APPENDED_LATER, False),
    ],
)
def test_a_commit_on_a_failed_append_has_no_answer_and_the_same_one_then_gets_it(
    fault: AppendFault, landed: bool
) -> None:
    async def main() -> None:
        node = await started()
        request = commit_of("a", batch())
        node.shared.fail_next_append(fault)
        with pytest.raises(OutcomeUnknownError):
            await node.shard.commit_file(request)
        assert not node.shard.leading
        await asyncio.sleep(0)
        assert next_offset(node) == int(landed)
        [result] = await node.commit(request)
        assert result.base_offset == 0
        node.shared.land_late_appends(SHARD_ID)
        await node.shard.barrier()
        assert next_offset(node) == 1
        await node.stop()

    run(main)


def test_what_the_log_never_saw_certainly_did_not_happen() -> None:
    async def main() -> None:
        node = await started()
        node.shared.hold_high_watermark(SHARD_ID)
        first = asyncio.create_task(node.shard.commit_file(commit_of("a", batch())))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(node.shard.commit_file(commit_of("b", batch())))
        await asyncio.sleep(0.1)
        node.shared.set_leader(SHARD_ID, 2)
        await asyncio.sleep(0.1)
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError, NotCoordinatorError]
        node.shared.release_high_watermark(SHARD_ID)
        await asyncio.sleep(0.1)
        assert [run.object_key for run in await node.read_all(P0)] == ["a"]
        await node.stop()

    run(main)


@guarantee("Reads", "Nobody reads what is not committed.")
def test_readers_see_only_what_is_committed() -> None:
    async def main() -> None:
        node = await started()
        node.shared.hold_high_watermark(SHARD_ID)
        commit = asyncio.create_task(node.shard.commit_file(commit_of("a", batch())))
        await asyncio.sleep(0.1)
        assert next_offset(node) == 0
        assert (await node.shard.find(P0, 0, 1)).runs == ()
        node.shared.release_high_watermark(SHARD_ID)
        await commit
        assert next_offset(node) == 1
        await node.stop()

    run(main)


def test_an_answer_that_relies_on_something_pending_waits_for_it() -> None:
    async def main() -> None:
        node = await started()
        request = commit_of("a", batch())
        node.shared.hold_high_watermark(SHARD_ID)
        first = asyncio.create_task(node.shard.commit_file(request))
        await asyncio.sleep(0.1)
        again = asyncio.create_task(node.shard.commit_file(request))
        await asyncio.sleep(0.1)
        assert not again.done()
        node.shared.release_high_watermark(SHARD_ID)
        assert await first == await again
        await node.stop()

    run(main)


def test_a_deposed_leader_cannot_pass_the_barrier() -> None:
    async def main() -> None:
        node = await started()
        node.shared.pause_reads(1)
        node.shared.state(SHARD_ID).append(entries.encode_claim(Claim(node_id=2, claim_id=uuid.UUID(int=5)), 0))
        barrier = asyncio.create_task(node.shard.barrier())
        await asyncio.sleep(10)
        assert not barrier.done()
        node.shared.resume_reads(1)
        with pytest.raises(CoordinatorError):
            await barrier
        await node.shard.until_leading()
        await node.shard.barrier()
        await node.stop()

    run(main)


def test_a_node_that_does_not_lead_says_so_and_one_that_is_about_to_says_that() -> None:
    async def main() -> None:
        shared = SharedLog()
        shared.set_leader(SHARD_ID, 2)
        node = ShardNode(shared, VirtualClock(asyncio.get_running_loop()))
        await node.start(lead=False)
        await asyncio.sleep(0)
        with pytest.raises(NotCoordinatorError):
            await node.shard.barrier()
        shared.hold_high_watermark(SHARD_ID)
        shared.set_leader(SHARD_ID, 1)
        await asyncio.sleep(0.1)
        with pytest.raises(CoordinatorLoadingError):
            await node.shard.barrier()
        await node.stop()

    run(main)


def test_each_claim_begins_a_term_of_its_own() -> None:
    async def main() -> None:
        node = await started()
        terms = [node.shard.term]
        for _ in range(3):
            node.shared.fail_next_append()
            with pytest.raises(CoordinatorError):
                await node.shard.barrier()
            terms.append(await node.shard.until_term_changes(None))
        assert terms == sorted(set(terms))
        await node.stop()

    run(main)


class _CountingLog(FakeCoordinatorLog):
    """Notices when the core has two appends under way."""

    under_way = 0
    most = 0

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(1)
            return await super().append(shard, batches)
        finally:
            self.under_way -= 1


class _OneLog(SharedLog):
    log: _CountingLog

    def node(self, node_id: int) -> FakeCoordinatorLog:
        self.log = _CountingLog(self, node_id)
        return self.log


def test_a_log_gets_one_append_at_a_time_even_when_leadership_is_lost_and_won_meanwhile() -> None:
    async def main() -> None:
        shared = _OneLog()
        node = await started(shared)
        commit = asyncio.create_task(node.commit(commit_of("a", batch())))
        await asyncio.sleep(0.1)
        shared.state(SHARD_ID).append(entries.encode_claim(Claim(node_id=2, claim_id=uuid.UUID(int=5)), 0))
        [result] = await commit
        assert result.base_offset == 0
        assert shared.log.most == 1
        await node.stop()

    run(main)


class _RewritingLog(FakeCoordinatorLog):
    """Stamps and compresses what it was given, as a Kafka topic can be configured to."""

    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        return self._rewritten(super().read(shard, offset))

    async def _rewritten(self, stream: AsyncIterator[Sequence[LogBatch]]) -> AsyncIterator[Sequence[LogBatch]]:
        async for batches in stream:
            yield [
                LogBatch(
                    one.offset,
                    one.next_offset,
                    record_batch.build(
                        [
                            record_batch.RecordData(record.key, record.value)
                            for record in record_batch.records(one.data)
                        ],
                        timestamp_ms=12345,
                        compression=1,
                    ),
                )
                for one in batches
            ]


class _Rewriting(SharedLog):
    def node(self, node_id: int) -> FakeCoordinatorLog:
        return _RewritingLog(self, node_id)


def test_a_log_that_stamps_and_compresses_entries_holds_nobody_up() -> None:
    async def main() -> None:
        node = await started(_Rewriting())
        [result] = await asyncio.wait_for(node.commit(commit_of("a", batch())), 10)
        assert result.base_offset == 0
        await asyncio.wait_for(node.shard.barrier(), 10)
        await node.stop()

    run(main)


def test_a_defect_in_a_listener_is_an_error_for_those_who_ask_and_not_a_silence() -> None:
    async def main() -> None:
        node = await started()

        def broken(_: object) -> None:
            raise ZeroDivisionError

        node.shard.on_commit(broken)
        with pytest.raises(CoordinatorError):
            await asyncio.wait_for(node.shard.commit_file(commit_of("a", batch())), 10)
        assert not node.shard.leading
        with pytest.raises(CoordinatorError):
            await asyncio.wait_for(node.shard.barrier(), 10)
        await node.stop()

    run(main)


def test_a_store_that_refuses_writes_delays_nobody_and_gets_everything_later() -> None:
    async def main() -> None:
        node = await started()
        expected = []
        with node.failing_store():
            for number in range(30):
                request = commit_of(f"{number}", batch(count=2))
                [result] = await node.commit(request)
                expected.append(Appended(f"{number}", request.batches[0], 2 * number, result.append_time))
                await asyncio.sleep(0.1)
            assert_runs_are(await node.read_all(P0), expected)
        await asyncio.sleep(3)
        await node.kill()
        node.shared.set_leader(SHARD_ID, 2)
        await node.start(lead=False)
        assert node.shard.next_offset > 30
        assert_runs_are(await node.read_all(P0), expected)
        await node.stop()

    run(main)


def test_a_store_that_fails_at_the_end_is_closed_all_the_same() -> None:
    async def main() -> None:
        node = await started()
        await node.commit(commit_of("a", batch()))
        with node.failing_store(), pytest.raises(CoordinatorStoreError, match="disk is full"):
            await node.stop()
        await node.start()
        assert next_offset(node) == 1
        await node.stop()

    run(main)


def test_a_shard_whose_store_cannot_be_opened_says_why_and_stops_quietly() -> None:
    async def main() -> None:
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))

        def refuse(*_: object) -> None:
            raise CoordinatorStoreError("injected: no permission")

        node.store.open = refuse
        with pytest.raises(CoordinatorStoreError, match="no permission"):
            await node.start()
        await node.shard.stop()

    run(main)


class _Sparse(OffsetAssignment):
    """Leaves a hole of ten offsets before each batch, which the interface allows."""

    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        offsets = []
        for count in record_counts:
            offsets.append(next_offset + 10)
            next_offset = offsets[-1] + count
        return offsets


def test_an_offset_in_a_hole_finds_what_comes_after_it_in_memory_and_in_the_store() -> None:
    async def main() -> None:
        node = await started(assignment=_Sparse())
        for name in "ab":
            await node.commit(commit_of(name, batch(count=2)))
        for _ in range(2):
            for offset, expected in ((0, "a"), (10, "a"), (11, "a"), (12, "b"), (21, "b"), (22, "b"), (23, "b")):
                found = await node.shard.find(P0, offset, 1)
                assert [run.object_key for run in found.runs] == [expected], offset
            await node.stop()
            await node.start()
        await node.stop()

    run(main)


def test_another_nodes_claim_is_not_taken_for_ones_own() -> None:
    async def main() -> None:
        shared = SharedLog(append_delay_s=lambda: 1.0)
        node = ShardNode(shared, VirtualClock(asyncio.get_running_loop()))
        await node.start(lead=False)
        await asyncio.sleep(0.5)
        shared.state(SHARD_ID).append(entries.encode_claim(Claim(node_id=2, claim_id=uuid.UUID(int=5)), 0))
        await asyncio.sleep(0.1)
        assert not node.shard.leading
        await node.shard.until_leading()
        assert node.shard.term == 1
        await node.stop()

    run(main)


def test_a_row_that_is_flushed_while_the_store_is_asked_for_it_is_found() -> None:
    async def main() -> None:
        node = await started()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        delays = iter([5.0])
        loop.executor_delay_s = lambda: next(delays, 0.0)
        lookup = asyncio.create_task(row_of(node.shard, FILES, ("a",)))
        await asyncio.sleep(0.1)
        await node.commit(commit_of("a", batch()))
        await asyncio.sleep(2)
        assert not node.shard.state.in_memory(FILES, ("a",))[0]
        found = await lookup
        assert found is not None
        assert found.size == commit_of("a", batch()).file_size
        await node.stop()

    run(main)


def test_a_defect_of_the_log_while_the_shard_is_claimed_ends_its_work_and_is_told() -> None:
    async def main() -> None:
        shared = SharedLog()
        node = ShardNode(shared, VirtualClock(asyncio.get_running_loop()))
        await node.start(lead=False)

        async def broken(*_: object) -> list[int]:
            raise RuntimeError("a defect")

        node.log.append = broken
        shared.set_leader(SHARD_ID, 1)
        await asyncio.sleep(10)
        assert node.shard.failure is not None
        await node.stop()

    run(main)
