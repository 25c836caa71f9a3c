"""Replicas get what was accepted from the leader, check it, and read the log where the leader cannot help."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from diskless_core.coordinator import entries, following, tail
from diskless_core.coordinator.entries import Claim
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.follow_shard import FollowShardAnswer, pack_entry
from diskless_core.protocol.messages import DisklessFollowShardRequest
from diskless_core.protocol.record_batch import RecordData
from tests.support.followers import LATENCY_S, Following, follow
from tests.support.shards import SHARD_ID, ShardNode

# --- what it costs, and how long it takes ---------------------------------------------------------------------------


def test_followers_that_are_up_to_date_know_a_commit_in_milliseconds_and_do_not_read_the_log() -> None:
    async def story(world: Following) -> None:
        before = dict(world.shared.entries_read)
        for _ in range(100):
            await world.commit()
            committed = world.clock.monotonic()
            await world.until_alike()
            assert world.clock.monotonic() - committed <= 3 * LATENCY_S
            await world.until_followed()
        assert world.shared.entries_read[2] == before[2], "a follower read the log"
        assert world.shared.entries_read[3] == before[3]
        assert world.streamed(2) >= 100

    follow(story, (1, 2, 3))


def test_entries_that_are_committed_together_are_sent_together() -> None:
    async def story(world: Following) -> None:
        asked = len(world.asked)
        await world.commit_together(200)
        await world.until_alike()
        assert len(world.asked) - asked < 10

    follow(story)


def test_an_idle_shard_costs_a_request_every_two_seconds_and_asks_the_log_once_a_minute() -> None:
    async def story(world: Following) -> None:
        asked, read = len(world.asked), world.shared.entries_read[2]
        await asyncio.sleep(600)
        assert len(world.asked) - asked <= 301 + 10
        assert world.shared.entries_read[2] == read

    follow(story)


def test_an_entry_is_packed_once_for_all_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []

    def pack(offset: int, next_offset: int, digest: bytes, data: bytes) -> bytes:
        packed.append(offset)
        return pack_entry(offset, next_offset, digest, data)

    async def story(world: Following) -> None:
        monkeypatch.setattr(tail, "pack_entry", pack)
        await world.commit(5)
        await world.until_alike()
        assert len(packed) == len(set(packed)) == 5

    follow(story, (1, 2, 3, 4))


# --- the log stands in for the leader, and the leader for the log -----------------------------------------------------


def test_a_follower_goes_on_without_its_log() -> None:
    async def story(world: Following) -> None:
        world.shared.pause_reads(2)
        await world.commit(20)
        await world.until_alike()
        world.shared.resume_reads(2)

    follow(story)


def test_a_follower_goes_on_without_the_leaders_answers_and_comes_back_to_them() -> None:
    async def story(world: Following) -> None:
        for away in (world.down, world.silent):
            away.add(1)
            await world.commit(3)
            await asyncio.sleep(20)
            await world.commit(3)
            await world.until_alike()
            away.remove(1)
            await world.until_followed()
            before = world.streamed(2)
            await world.commit(3)
            await world.until_alike()
            assert world.streamed(2) == before + 3

    follow(story)


def test_a_follower_of_a_leader_that_is_away_asks_it_ever_more_rarely() -> None:
    async def story(world: Following) -> None:
        tries: list[float] = []
        send = world.send

        async def refuse(*arguments: object) -> bytes:
            tries.append(world.clock.monotonic())
            return await send(*arguments)  # type: ignore[arg-type]  # as they came

        world.down.add(1)
        world.nodes[2].shard._following._calls._transport = type("T", (), {"send": staticmethod(refuse)})()  # type: ignore[union-attr]
        await asyncio.sleep(600)
        assert 60 <= len(tries) <= 120

    follow(story)


def test_a_follower_that_was_away_for_longer_than_the_tail_reads_the_log_and_then_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("diskless_core.coordinator.shard.TAIL_BYTES", 5_000)

    async def story(world: Following) -> None:
        await world.nodes[2].stop()
        await world.commit(60)
        before = world.shared.entries_read[2]
        await world.start_node(2)
        await world.until_alike()
        assert world.shared.entries_read[2] - before >= 50
        await world.until_followed()
        read = world.shared.entries_read[2]
        for _ in range(60):
            await world.commit()
            await world.until_alike()
        assert world.shared.entries_read[2] == read
        leader = world.nodes[1].shard.tail
        assert leader._bytes <= 5_000
        assert leader.start > 0

    follow(story)


def test_a_follower_that_was_away_for_a_moment_gets_what_it_lacks_from_the_leader() -> None:
    async def story(world: Following) -> None:
        await world.nodes[2].stop()
        world.shared.pause_reads(2, beyond_now=True)
        await world.commit(20)
        await world.start_node(2)
        await world.until_alike()
        assert world.streamed(2) >= 20
        world.shared.resume_reads(2)

    follow(story)


def test_an_answer_has_so_many_bytes_and_one_entry_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "ANSWER_BYTES", 1)
    sizes: list[int] = []

    async def story(world: Following) -> None:
        def look(_: DisklessFollowShardRequest, answer: FollowShardAnswer) -> FollowShardAnswer:
            sizes.append(len(answer.entries))
            return answer

        world.forge = look
        await world.commit_together(20)
        await world.until_alike()
        assert max(sizes) == 1

    follow(story)


def test_a_follower_asks_for_nothing_while_its_store_lacks_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diskless_core.coordinator.shard_store.MAX_UNSTORED_ROWS", 10)

    async def story(world: Following) -> None:
        world.nodes[2].store.failing = True
        while not world.nodes[2].shard.held_back:
            await world.commit()
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        asked = len(world.asked)
        await world.commit(3)
        await asyncio.sleep(60)
        assert len(world.asked) == asked
        world.nodes[2].store.failing = False
        await asyncio.sleep(60)
        await world.until_alike()

    follow(story)


# --- who is followed --------------------------------------------------------------------------------------------------


def test_a_new_leader_is_followed_from_its_claim_on_and_reads_the_log_itself() -> None:
    async def story(world: Following) -> None:
        await world.commit(5)
        read = dict(world.shared.entries_read)
        for leader in (2, 3, 1, 2):
            world.shared.set_leader(SHARD_ID, leader)
            await world.nodes[leader].shard.until_leading()
            await world.commit(10, at=leader)
            await world.until_alike()
            await world.until_followed()
            streamed = {node_id: world.streamed(node_id) for node_id in world.nodes}
            await world.commit(10, at=leader)
            await world.until_alike()
            for node_id in world.nodes:
                expected = 0 if node_id == leader else 10
                assert world.streamed(node_id) - streamed[node_id] == expected
        assert world.shared.entries_read[3] - read[3] < 60, "most of it came from leaders"

    follow(story, (1, 2, 3))


def test_requests_that_wait_end_when_the_leader_leads_no_more_or_stops() -> None:
    async def story(world: Following) -> None:
        begun = world.clock.monotonic()
        world.shared.set_leader(SHARD_ID, None)
        await world.until(lambda: not world.nodes[1].shard.leading)
        await world.until(lambda: world.nodes[1].shard.tail._waiting == 0)
        assert world.clock.monotonic() - begun < 0.5
        world.shared.set_leader(SHARD_ID, 1)
        await world.nodes[1].shard.until_leading()
        await world.until_followed()
        begun = world.clock.monotonic()
        world.feeds[1].close()
        await world.until(lambda: world.nodes[1].shard.tail._waiting == 0)
        assert world.clock.monotonic() - begun < 0.5

    follow(story)


def test_a_leader_that_is_about_to_stop_gives_on_and_is_not_asked_without_a_pause() -> None:
    async def story(world: Following) -> None:
        await world.until_followed()
        feeds = world.feeds[1]
        follow, asked = feeds.follow, list[float]()

        async def counted(request: DisklessFollowShardRequest) -> FollowShardAnswer:
            asked.append(world.clock.monotonic())
            assert len(asked) < 1_000
            return await follow(request)

        feeds.follow = counted  # type: ignore[method-assign]
        feeds.close()
        await asyncio.sleep(10)
        assert 50 < len(asked) < 150
        read = world.shared.entries_read[2]
        await world.commit(10)
        await world.until_alike()
        assert world.shared.entries_read[2] == read

    follow(story)


def test_without_a_hint_the_latest_claimant_is_followed() -> None:
    async def story(world: Following) -> None:
        world.shared.set_leader(SHARD_ID, None, seen_by=[2])
        await asyncio.sleep(5)
        read = world.shared.entries_read[2]
        await world.until_followed()
        await world.commit(10)
        await world.until_alike()
        assert world.shared.entries_read[2] == read

    follow(story)


def test_a_node_that_only_believes_to_lead_gives_nothing_that_its_own_reader_has_not_accepted() -> None:
    async def story(world: Following) -> None:
        world.shared.hold_high_watermark(SHARD_ID)
        committing = asyncio.create_task(world.commit())
        await asyncio.sleep(5)
        assert len(world.nodes[1].shard._leader.pipeline) == 1
        assert world.nodes[2].shard.next_offset == world.nodes[1].shard.next_offset
        world.shared.release_high_watermark(SHARD_ID)
        await committing
        await world.until_alike()

    follow(story)


def test_a_leader_that_does_not_know_that_it_was_deposed_is_left_after_a_while() -> None:
    async def story(world: Following) -> None:
        world.shared.pause_reads(1)
        world.shared.set_leader(SHARD_ID, 3, seen_by=[3])
        await world.nodes[3].shard.until_leading()
        await world.commit(5, at=3)
        end = world.nodes[3].shard.next_offset
        assert world.nodes[1].shard.leading, "it has not read the claim"
        assert world.nodes[2].shard.leader_hint == 1
        await world.until(lambda: world.nodes[2].shard.next_offset == end)
        world.shared.resume_reads(1)
        world.shared.set_leader(SHARD_ID, 3)
        await world.until_alike()

    follow(story, (1, 2, 3))


def test_entries_that_do_not_count_are_passed_over_without_reading_the_log() -> None:
    async def story(world: Following) -> None:
        read = world.shared.entries_read[2]
        state = world.shared.state(SHARD_ID)
        stale = RecordData(key=None, value=b"\x01")
        for _ in range(3):
            state.append(entries.encode_entry(-1, 7, [stale], 0))
            await world.commit()
            state.append(entries.encode_entry(-1, 8, [stale], 0))
        await world.until_alike()
        assert world.shared.entries_read[2] == read

    follow(story)


def test_a_follower_that_starts_serves_once_the_leader_has_sent_what_there_was() -> None:
    async def story(world: Following) -> None:
        await world.nodes[2].stop()
        world.shared.pause_reads(2, beyond_now=True)
        await world.commit(5)
        world.shared.state(SHARD_ID).append(entries.encode_entry(-1, 7, [entries.NO_OP], 0))
        await world.start_node(2)
        await asyncio.wait_for(world.nodes[2].shard.until_serving(), 60)
        world.shared.resume_reads(2)

    follow(story)


# --- what differs -----------------------------------------------------------------------------------------------------


def forged(answer: FollowShardAnswer, *, data: bytes | None = None, digest: bytes | None = None) -> FollowShardAnswer:
    """The answer with its first entry changed; the digest is made to fit, or else is `digest`."""
    [first, *rest] = answer.entries
    return replace(answer, entries=[_changed(first, data, digest), *rest])


def _changed(packed: bytes, data: bytes | None, digest: bytes | None) -> bytes:
    offset, next_offset = int.from_bytes(packed[:8], "big"), int.from_bytes(packed[8:16], "big")
    return pack_entry(offset, next_offset, packed[17:33] if digest is None else digest, data or packed[40:-1])


@pytest.mark.parametrize("what", ["data", "digest", "twice", "missing"])
def test_what_does_not_follow_is_not_taken_and_the_log_says_what_comes_next(what: str) -> None:
    async def story(world: Following) -> None:
        def forge(_: DisklessFollowShardRequest, answer: FollowShardAnswer) -> FollowShardAnswer:
            if not answer.entries:
                return answer
            if what == "data":
                return forged(answer, data=entries.encode_claim(Claim(9, world.clock.new_uuid()), 0))
            if what == "digest":
                return forged(answer, digest=b"x" * 16)
            if what == "twice":
                return replace(answer, entries=[answer.entries[0], *answer.entries])
            return replace(answer, entries=answer.entries[:-1])

        world.forge = forge
        await world.commit(5)
        await world.until_alike()
        assert world.differences(2) == 1
        await world.commit(5)
        await world.until_alike()
        assert world.differences(2) == 1, "it is not asked again in this term"
        world.forge = lambda _, answer: answer
        await world.lead_again(1)
        await world.until_followed()

    follow(story)


def test_what_the_leader_has_not_accepted_is_not_taken_even_if_its_digests_fit() -> None:
    async def story(world: Following) -> None:
        def forge(request: DisklessFollowShardRequest, answer: FollowShardAnswer) -> FollowShardAnswer:
            if not answer.entries:
                return answer
            offset = request.next_offset
            early = entries.encode_entry(request.term, request.next_sequence + 1, [entries.NO_OP], 0)
            digest = entries.chained(request.digest, LogBatch(offset, offset + 2, early))
            return replace(answer, entries=[pack_entry(offset, offset + 2, digest, early)])

        world.forge = forge
        await world.commit(5)
        await world.until_alike()
        assert world.differences(2) == 1

    follow(story)


def test_a_node_that_has_applied_what_the_log_does_not_have_stops_and_says_so() -> None:
    async def story(world: Following) -> None:
        replica = world.nodes[2].shard._replica
        replica.acceptance = replace(replica.acceptance, digest=b"another's")
        await world.commit()
        deadline = world.clock.monotonic() + 60
        while world.nodes[2].shard.failure is None:
            assert world.clock.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert "the log has other entries than were applied here" in str(world.nodes[2].shard.failure)

    follow(story)


def test_a_leader_that_has_applied_what_the_log_does_not_have_is_not_followed() -> None:
    async def story(world: Following) -> None:
        world.shared.state(SHARD_ID).append(entries.encode_entry(-1, 7, [entries.NO_OP], 0))
        await world.commit(3)
        await world.until_alike()
        replica = world.nodes[1].shard._replica
        replica.acceptance = replace(replica.acceptance, digest=b"another's")
        await world.commit(5)
        await world.until(lambda: world.nodes[2].shard.next_offset == world.nodes[1].shard.next_offset)
        assert world.nodes[2].shard.failure is None
        assert world.differences(2) == 1

    follow(story)


def mistaken(node: ShardNode) -> None:
    """From now on the node has applied something else, longer ago than its tail goes back."""
    replica = node.shard._replica
    replica.acceptance = replace(replica.acceptance, digest=b"another's")
    replica.tail.reset(replica.next_offset, replica.acceptance)


async def until_failed(world: Following, node_id: int) -> str:
    deadline = world.clock.monotonic() + 60
    while (failure := world.nodes[node_id].shard.failure) is None:
        assert world.clock.monotonic() < deadline
        await asyncio.sleep(0.01)
    return failure


async def snapshot(world: Following, *, prune: bool) -> None:
    leader = world.nodes[1]
    await leader.shard.flush()
    manifest = await leader.shard.take_snapshot(world.snapshots)
    if prune:
        await leader.log.prune(SHARD_ID, manifest.applied_offset)


@pytest.mark.parametrize("place", ["no snapshot", "behind the follower", "before the follower", "just there"])
def test_a_difference_older_than_the_tail_is_found_by_what_snapshot_and_log_lead_to(place: str) -> None:
    async def story(world: Following) -> None:
        await world.commit(3)
        await world.until_alike()
        if place == "behind the follower":
            await snapshot(world, prune=True)
            await world.commit(3)
            await world.until_alike()
        if place == "just there":
            await snapshot(world, prune=True)
        if place == "before the follower":
            world.down.add(1)
            world.shared.pause_reads(2)
            await world.commit(3)
            await snapshot(world, prune=False)
        mistaken(world.nodes[2])
        world.down.clear()
        world.shared.resume_reads(2)
        await world.commit(1)
        assert "the log has other entries than were applied here" in await until_failed(world, 2)

    follow(story)


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_leader_that_is_mistaken_since_longer_ago_than_the_tail_is_not_followed(has_snapshot: bool) -> None:
    async def story(world: Following) -> None:
        await world.commit(3)
        await world.until_alike()
        if has_snapshot:
            await snapshot(world, prune=True)
        mistaken(world.nodes[1])
        await world.commit(5)
        await world.until(lambda: world.nodes[2].shard.next_offset == world.nodes[1].shard.next_offset)
        assert world.nodes[2].shard.failure is None
        assert world.differences(2) == 1
        world.forge = lambda _, answer: answer

    follow(story)


def test_a_claim_that_shows_that_this_node_is_mistaken_since_longer_ago_than_its_tail_stops_it() -> None:
    async def story(world: Following) -> None:
        await world.commit(3)
        await world.until_alike()
        right, wrong = (world.nodes[node_id].shard._replica for node_id in (1, 2))
        read = right.acceptance.at(right.next_offset)
        wrong.acceptance = replace(wrong.acceptance, next_sequence=77)
        wrong.tail.reset(wrong.next_offset, wrong.acceptance)
        world.down.add(1)
        world.shared.state(SHARD_ID).append(entries.encode_claim(Claim(9, world.clock.new_uuid(), read), 0))
        assert "the log has other entries than were applied here" in await until_failed(world, 2)
        assert world.nodes[1].shard.failure is None
        assert world.nodes[1].shard.meter.disputed_claims._value.get() == 0

    follow(story)


def test_while_the_log_is_silent_a_difference_is_not_settled_and_nobody_waits_for_ever() -> None:
    async def story(world: Following) -> None:
        await world.commit(3)
        await world.until_alike()
        world.down.add(1)
        world.shared.pause_reads(2)
        await world.commit(3)
        world.down.clear()
        await world.until_alike()
        mistaken(world.nodes[1])
        await world.commit(3)
        await asyncio.sleep(200)
        assert world.differences(2) > 2, "it was asked again and again"
        assert world.nodes[2].shard.failure is None
        world.shared.resume_reads(2)
        await world.until(lambda: world.nodes[2].shard.next_offset == world.nodes[1].shard.next_offset)

    follow(story)


FAR = 1 << 62


@pytest.mark.parametrize("where", ["answer", "entry", "both", "refusal"])
def test_an_offset_that_the_log_does_not_have_is_not_believed(where: str) -> None:
    async def story(world: Following) -> None:
        def forge(_: DisklessFollowShardRequest, answer: FollowShardAnswer) -> FollowShardAnswer:
            if where == "refusal":
                return FollowShardAnswer(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), next_offset=FAR)
            if where in ("entry", "both") and answer.entries:
                packed = answer.entries[-1]
                further = packed[:8] + FAR.to_bytes(8, "big") + packed[16:]
                answer = replace(answer, entries=[*answer.entries[:-1], further])
            return answer if where == "entry" else replace(answer, next_offset=FAR)

        world.forge = forge
        await world.commit(5)
        await world.until_alike()
        asked = len(world.asked)
        await asyncio.sleep(60)
        assert len(world.asked) - asked < 60, "it is asked ever more rarely"
        await world.nodes[2].stop()  # what the store knows can be started from
        await world.start_node(2)
        await world.commit(5)
        await world.until_alike()
        world.forge = lambda _, answer: answer
        await world.lead_again(1)
        await world.until_followed()

    follow(story)


def test_a_leader_that_is_ahead_of_what_the_log_says_of_its_end_is_followed() -> None:
    async def story(world: Following) -> None:
        state = world.shared.state(SHARD_ID)
        world.shared.lag_bounds(SHARD_ID, state.end)
        state.append(entries.encode_probe(0))
        await world.until_alike()
        await world.until_followed()
        assert world.differences(2) == 0

    follow(story)


def test_digests_survive_a_restart_and_a_snapshot() -> None:
    async def story(world: Following) -> None:
        await world.commit(5)
        await world.until_alike()
        follower = world.nodes[2]
        before = follower.shard._replica.acceptance
        assert len(before.digest) == 16
        await follower.stop()
        await world.start_node(2)
        assert follower.shard._replica.acceptance == before
        await world.nodes[1].shard.flush()
        await world.nodes[1].shard.take_snapshot(world.snapshots)
        await world.nodes[1].log.prune(SHARD_ID, world.nodes[1].shard.next_offset)
        await follower.stop()
        follower.store.disk = follower.store.disk.empty()
        await world.start_node(2)
        assert follower.shard._replica.acceptance == before

    follow(story)


# --- what a leader answers --------------------------------------------------------------------------------------------


async def answer_of(world: Following, node_id: int = 1, **changes: object) -> FollowShardAnswer:
    acceptance = world.nodes[1].shard._replica.acceptance
    fields = {
        "shard_topic": SHARD_ID.topic,
        "shard_index": SHARD_ID.index,
        "next_offset": world.nodes[1].shard.next_offset,
        "term": acceptance.term,
        "next_sequence": acceptance.next_sequence,
        "digest": acceptance.digest,
        "max_bytes": 1_000,
        "max_wait_ms": 0,
    }
    return await world.feeds[node_id].follow(DisklessFollowShardRequest(**fields | changes))


def test_a_leader_says_why_it_has_nothing_to_give() -> None:
    async def story(world: Following) -> None:
        await world.commit()
        end = world.nodes[1].shard.next_offset
        nothing = await answer_of(world)
        assert (nothing.error_code, nothing.next_offset, nothing.entries) == (0, end, ())
        codes = {
            ErrorCode.NOT_COORDINATOR: await answer_of(world, 2),
            ErrorCode.UNKNOWN_LEADER_EPOCH: await answer_of(world, term=end + 5, next_offset=end + 9),
            ErrorCode.CORRUPT_MESSAGE: await answer_of(world, digest=b"?"),
        }
        for code, answer in codes.items():
            assert answer.error_code == code
            assert answer.error_message
        assert (await answer_of(world, shard_index=7)).error_code == ErrorCode.NOT_COORDINATOR
        ahead = await answer_of(world, next_offset=end + 5, max_wait_ms=10)
        assert (ahead.error_code, ahead.entries) == (0, ()), "it has not come so far itself"
        world.shared.set_leader(SHARD_ID, None)
        await world.until(lambda: not world.nodes[1].shard.leading)
        with pytest.raises(CoordinatorError):
            world.nodes[1].shard.require_leading()
        assert (await answer_of(world)).error_code == ErrorCode.NOT_COORDINATOR

    follow(story)
