"""What a shared log may do to a shard: refuse an entry, fall silent, lag, nominate wrongly, lose its tail."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

import pytest

from diskless_core.clock import Clock
from diskless_core.coordinator import entries, leader
from diskless_core.coordinator.claim_failures import GIVE_WAY_S
from diskless_core.coordinator.entries import Claim, Position
from diskless_core.coordinator.errors import CommandTakenBackError, CoordinatorError, EntryTooLargeError
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.coordinator_log import EntryRefusedError, LeadershipHint
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import RecordData
from diskless_core.testing.fakes.log import AppendFault, SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

PARTITIONS = 64


def big_commit(name: str):
    return commit_of(name, *(batch(number % PARTITIONS, producer=(number, 0, 0)) for number in range(400)))


async def a_leader(shared: SharedLog, clock: Clock | None = None) -> ShardNode:
    node = ShardNode(shared, clock or VirtualClock(asyncio.get_running_loop(), 1))
    await node.start()
    await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", range(PARTITIONS))
    return node


def claims(shared: SharedLog) -> int:
    return sum(isinstance(entries.decode(entry.data), Claim) for entry in shared.content(SHARD_ID))


def test_a_command_whose_entry_is_too_large_fails_at_once_and_the_term_goes_on() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        node.shared.max_entry_bytes = node.shared.announced_max_entry_bytes = 10_000
        before = len(node.shared.content(SHARD_ID))
        with pytest.raises(EntryTooLargeError, match="10000 bytes"):
            await node.shard.commit_file(big_commit("big"))
        written = [entries.decode(entry.data) for entry in node.shared.content(SHARD_ID)[before:]]
        assert [entry.records for entry in written] == [[entries.NO_OP]], "only the proof that the node leads still"
        await node.shard.commit_file(commit_of("small", batch()))
        assert claims(node.shared) == 1
        await node.stop()

    run(main)


def test_while_a_node_proves_that_an_entry_is_too_large_other_commands_go_on_their_way() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        node.shared.announced_max_entry_bytes = 10_000
        node.shared.hold_high_watermark(SHARD_ID)
        big = asyncio.create_task(node.shard.commit_file(big_commit("big")))
        await asyncio.sleep(5)
        small = asyncio.create_task(node.shard.commit_file(commit_of("small", batch())))
        await asyncio.sleep(5)
        assert not big.done(), "it is not proved yet"
        assert node.shard.pending_commands == 2, "the proof, and the small one behind it"
        node.shared.release_high_watermark(SHARD_ID)
        with pytest.raises(EntryTooLargeError):
            await big
        [result] = await small
        assert result.base_offset == 0
        await node.stop()

    run(main)


def test_a_refused_entry_fails_alone_what_is_before_it_commits_and_what_is_behind_is_taken_back() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog(append_delay_s=lambda: 0.01))
        node.shared.max_entry_bytes = 10_000  # and it does not say so
        term = node.shard.term
        first = asyncio.create_task(node.shard.commit_file(commit_of("0", batch())))  # one append is on its way
        await asyncio.sleep(0.005)
        requests = [commit_of("1", batch()), big_commit("2"), commit_of("3", batch()), commit_of("4", batch())]
        behind = [asyncio.create_task(node.shard.commit_file(request)) for request in requests]
        outcomes = await asyncio.gather(first, *behind, return_exceptions=True)
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds[2:] == [EntryTooLargeError, CommandTakenBackError, CommandTakenBackError]
        assert [outcome[0].base_offset for outcome in outcomes[:2]] == [0, 1]
        [again] = await node.shard.commit_file(requests[2])
        assert again.base_offset == 2, "what was taken back has left nothing"
        assert node.shard.term == term
        assert claims(node.shared) == 1
        heads = node.shard.heads()
        await node.stop()
        node.store.disk = node.store.disk.empty()
        await node.start()
        assert node.shard.heads() == heads
        await node.stop()

    run(main)


def test_a_refused_entry_that_comes_back_all_the_same_ends_the_term_and_no_command_waits_for_ever() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        term, append = node.shard.term, node.log.append

        async def refuse(shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
            node.shared.state(shard).late.extend(batches)
            raise EntryRefusedError("it is too large", position=0)

        node.log.append = refuse  # type: ignore[method-assign]
        with pytest.raises(EntryTooLargeError):
            await node.shard.commit_file(commit_of("a", batch()))
        node.log.append = append  # type: ignore[method-assign]
        node.shared.land_late_appends(SHARD_ID)
        async with asyncio.timeout(10):
            [result] = await node.commit(commit_of("b", batch()))
        assert result.base_offset == 1
        assert node.shard.term != term
        await node.stop()

    run(main)


def test_an_append_that_never_ends_is_one_of_unknown_outcome() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        node.shared.append_timeout_s = 1e9
        node.shared.hold_high_watermark(SHARD_ID)
        async with asyncio.timeout(leader.APPEND_LIMIT_S + 1):
            with pytest.raises(CoordinatorError, match="has not answered"):
                await node.shard.commit_file(commit_of("a", batch()))
        node.shared.release_high_watermark(SHARD_ID)
        await node.shard.until_leading()
        [result] = await node.shard.commit_file(commit_of("a", batch()))
        assert result.base_offset == 0
        await node.stop()

    run(main)


def test_a_hint_of_a_lower_generation_is_ignored() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        term = node.shard.term
        node.shared.state(SHARD_ID).hints = {1: LeadershipHint(2, generation=-1)}
        node.shared.state(SHARD_ID).notify()
        await asyncio.sleep(5)
        assert node.shard.term == term
        await node.stop()

    run(main)


def test_a_shard_that_failed_gives_way_to_another_node() -> None:
    async def main() -> None:
        def defect(_: object) -> None:
            raise RuntimeError("a defect in a listener")

        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        one, two = ShardNode(shared, clock, 1), ShardNode(shared, clock, 2)
        for node in (one, two):
            await node.start(lead=False)
        await one.shard.until_leading()
        await one.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        one.shard.on_commit(defect)
        with pytest.raises(CoordinatorError):
            await one.shard.commit_file(commit_of("a", batch()))
        await two.shard.until_leading()
        await two.shard.commit_file(commit_of("b", batch()))
        assert one.shard.failure is not None
        assert one.shard.leader_hint == 2
        shared.set_leader(SHARD_ID, 1)  # a log that nominates it all the same
        await asyncio.sleep(5)
        assert claims(shared) == 2
        await one.stop()
        await two.stop()

    run(main)


def test_a_node_whose_claims_the_log_does_not_take_gives_way_for_a_while_where_the_log_elects_leaders() -> None:
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        one, two = ShardNode(shared, clock, 1), ShardNode(shared, clock, 2)
        for node in (one, two):
            await node.start(lead=False)
        await one.shard.until_leading()
        shared.append_error = lambda _, node_id: AppendFault.NOTHING_APPENDED if node_id == 1 else None
        with pytest.raises(CoordinatorError):
            await one.shard.barrier()
        await asyncio.wait_for(two.shard.until_leading(), 60)
        shared.set_leader(SHARD_ID, 2)
        await asyncio.sleep(10 * GIVE_WAY_S)
        assert two.shard.leading

        shared.append_error = None
        shared.set_leader(SHARD_ID, 1)
        await asyncio.wait_for(one.shard.until_leading(), 5)
        await one.stop()
        await two.stop()

    run(main)


def test_nodes_that_all_believe_to_be_nominated_settle() -> None:
    async def main() -> None:
        shared, clock = SharedLog(append_delay_s=lambda: 0.03), VirtualClock(asyncio.get_running_loop(), 1)
        nodes = [ShardNode(shared, clock, node_id) for node_id in (1, 2, 3)]
        for node in nodes:
            shared.set_leader(SHARD_ID, node.node_id, seen_by=[node.node_id])
            await node.start(lead=False)
        await asyncio.sleep(300)
        before = claims(shared)
        await asyncio.sleep(60)
        assert claims(shared) - before <= 12
        for node in nodes:
            await node.stop()

    run(main)


def test_a_log_whose_end_lags_is_not_lost() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        await node.shard.commit_file(commit_of("a", batch()))
        await node.stop()
        node.shared.lag_bounds(SHARD_ID, 1)
        await node.start()
        [result] = await node.shard.commit_file(commit_of("b", batch()))
        assert result.base_offset == 1
        await node.stop()

    run(main)


def test_a_log_that_was_cut_is_lost_even_once_something_was_appended() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        await node.shard.commit_file(commit_of("a", batch()))
        await node.stop()
        node.shared.truncate(SHARD_ID, 1)
        with pytest.raises(CoordinatorError, match="lost or cut"):
            await node.start()
        await node.kill()

    run(main)


def test_a_log_that_was_cut_is_refused_at_every_start() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        for number in range(5):
            await node.shard.commit_file(commit_of(str(number), batch()))
        end = node.shared.state(SHARD_ID).end
        await node.stop()
        node.shared.truncate(SHARD_ID, end - 6)
        for _ in range(12):  # each start appends
            with pytest.raises(CoordinatorError, match="lost or cut"):
                await node.start()
            await node.kill()
        assert node.shared.state(SHARD_ID).end >= end, "by its length nothing is missing any more"

    run(main)


def test_a_log_that_was_cut_and_written_on_by_another_node_is_refused_even_if_nothing_is_missing_by_its_length() -> (
    None
):
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        one = await a_leader(shared, clock)
        kept = shared.state(SHARD_ID).end
        await one.shard.commit_file(commit_of("lost", batch()))
        await one.stop()
        shared.truncate(SHARD_ID, kept)
        two = ShardNode(shared, clock, 2)
        await two.start()
        for number in range(5):
            await two.shard.commit_file(commit_of(str(number), batch()))
        with pytest.raises(CoordinatorError, match="has other entries from offset"):
            await one.start(lead=False)
        await one.kill()
        await two.stop()

    run(main)


def test_a_cut_is_seen_where_only_entries_that_did_not_count_were_lost_and_others_stand_there_now() -> None:
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        one = await a_leader(shared, clock)
        kept = shared.state(SHARD_ID).end
        for _ in range(8):
            shared.state(SHARD_ID).append(entries.encode_probe(0))
        await asyncio.sleep(1)
        await one.shard.flush()
        await one.shard.barrier()
        assert one.shard.next_offset > kept + 8
        await one.stop()
        await one.start(lead=False)
        await one.stop()
        shared.truncate(SHARD_ID, kept)
        two = ShardNode(shared, clock, 2)
        await two.start()
        for number in range(9):
            await two.shard.commit_file(commit_of(str(number), batch()))
        with pytest.raises(CoordinatorError, match="lost or cut"):
            await one.start(lead=False)
        await one.kill()
        await two.stop()

    run(main)


def test_a_snapshot_that_knows_more_than_a_cut_log_refuses_it_at_every_start() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop(), 1)
        snapshots = Snapshots(MemoryWalObjectStore(clock), "snapshots", clock)
        node = ShardNode(SharedLog(), clock, snapshots=snapshots)
        await node.start()
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", range(PARTITIONS))
        for number in range(5):
            await node.shard.commit_file(commit_of(str(number), batch()))
        await node.shard.flush()
        await node.shard.take_snapshot(snapshots)
        end = node.shared.state(SHARD_ID).end
        await node.stop()
        node.shared.truncate(SHARD_ID, end - 6)
        for _ in range(12):
            node.store.disk = node.store.disk.empty()
            with pytest.raises(CoordinatorError, match="lost or cut"):
                await node.start()
            await node.kill()
        assert node.shared.state(SHARD_ID).end >= end, "by its length nothing is missing any more"

    run(main)


def test_a_node_that_was_deposed_does_not_say_that_an_entry_is_too_large() -> None:
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        one = await a_leader(shared, clock)
        two = ShardNode(shared, clock, 2)
        await two.start(lead=False)
        shared.pause_reads(1)
        shared.set_leader(SHARD_ID, 2, seen_by=[2])
        await two.shard.until_leading()
        assert one.shard.leading, "it has not read the claim"
        shared.announced_max_entry_bytes = 10_000
        refused = asyncio.create_task(one.shard.commit_file(big_commit("a")))
        await asyncio.sleep(5)
        shared.max_entry_bytes = 10_000
        shared.announced_max_entry_bytes = 1 << 20
        refused_by_log = asyncio.create_task(one.shard.commit_file(big_commit("b")))
        await asyncio.sleep(5)
        assert not refused.done()
        assert not refused_by_log.done()
        shared.set_leader(SHARD_ID, 2)
        shared.resume_reads(1)
        for task in (refused, refused_by_log):
            with pytest.raises(CoordinatorError) as raised:
                await task
            assert not isinstance(raised.value, EntryTooLargeError)
        await one.stop()
        await two.stop()

    run(main)


def test_messages_of_another_producer_are_ignored() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        for record in (RecordData(b"k", b"hello"), RecordData(None, b"hello"), RecordData(None, None)):
            node.shared.state(SHARD_ID).append(record_batch.build([record], timestamp_ms=1))
            await node.shard.commit_file(commit_of(str(record), batch()))
        assert node.shard.failure is None
        assert claims(node.shared) == 1
        await node.stop()

    run(main)


def test_a_claimant_that_has_read_something_else_is_reported_and_its_claim_counts() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        await node.shard.commit_file(commit_of("a", batch()))
        read = Position(node.shard.next_offset, 0, 77)
        claim = Claim(node_id=9, claim_id=uuid.UUID(int=9), read=read)
        node.shared.state(SHARD_ID).append(entries.encode_claim(claim, 0))
        await asyncio.sleep(5)
        await node.shard.until_leading()
        assert node.shard.failure is None
        assert node.shard.meter.disputed_claims._value.get() == 1
        await node.shard.commit_file(commit_of("b", batch()))
        await node.stop()

    run(main)


def test_a_replica_that_has_read_a_tail_that_was_lost_stops() -> None:
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop(), 1)
        one = await a_leader(shared, clock)
        two = ShardNode(shared, clock, 2)
        await two.start(lead=False)
        kept = shared.state(SHARD_ID).end
        for number in range(3):
            await one.shard.commit_file(commit_of(f"lost {number}", batch()))
        await asyncio.sleep(1)
        shared.set_leader(SHARD_ID, 3)
        await one.kill()
        shared.truncate(SHARD_ID, kept)
        three = ShardNode(shared, clock, 3)
        await three.start()
        for number in range(8):
            await three.shard.commit_file(commit_of(f"new {number}", batch()))
        shared.fail_next_append(node_id=3)
        with pytest.raises(CoordinatorError):
            await three.shard.commit_file(commit_of("ends the term", batch()))
        await three.shard.until_leading()
        await asyncio.sleep(5)
        assert two.shard.failure is not None
        assert "the log has other entries" in two.shard.failure
        assert three.shard.failure is None
        await two.kill()
        await three.stop()

    run(main)


def test_a_leader_whose_log_gives_offsets_out_again_stops() -> None:
    async def main() -> None:
        node = await a_leader(SharedLog())
        await node.shard.commit_file(commit_of("a", batch()))
        node.shared.truncate(SHARD_ID, 1)
        with pytest.raises(CoordinatorError, match="gave out offset 1"):
            await node.shard.commit_file(commit_of("b", batch()))
        await node.kill()

    run(main)
