"""The group coordinator on a shard: requests in, answers out, nothing answered before it is committed."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

import pytest

from diskless_core.coordinator.errors import CoordinatorLoadingError
from diskless_core.coordinator.slices import SLICE_UNITS
from diskless_core.groups.model import CommittedOffset
from diskless_core.groups.records import OffsetRecord
from diskless_core.groups.tables import GROUP_OFFSETS, GROUPS
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support import virtual_time
from tests.support.waiting import PATIENCE_S
from tests.unit.groups.node import SETTINGS, SHARD, AdjustableClock, Topics, running_node


@pytest.fixture
async def node():
    async with running_node() as one:
        one.topics.create("t")
        yield one


# --- membership -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
async def test_a_member_lives_in_every_version(node, version):
    joined = await node.join(version)
    assert joined.error_code == 0
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("app-")
    assert [bytes(one.metadata) for one in joined.members] == [b"meta"]
    assert (await node.sync(joined, min(version, 5), **{joined.member_id: b"all"})).assignment == b"all"
    assert await node.beat(joined, min(version, 4)) == 0
    if version >= 7:
        assert joined.protocol_type == "consumer"


async def test_a_member_of_version_0_has_its_session_timeout_to_rejoin(node):
    joined = await node.join(0, session_timeout_ms=7_000)
    await node.sync(joined, 0, **{joined.member_id: b"all"})
    assert node.shard.state.committed(GROUPS, ("g",)).members[0].rebalance_timeout_ms == 7_000


@pytest.mark.parametrize("version", range(10))
async def test_an_error_fits_every_version(node, version):
    answer = await node.join(version, member_id="who")
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.protocol_name == (None if version >= 7 else "")


async def test_two_members_share_an_assignment(node):
    first, second = await asyncio.gather(node.join(3), node.join(3))
    leader, follower = (first, second) if first.members else (second, first)
    waiting = asyncio.create_task(node.sync(follower))
    await node.sync(leader, **{leader.member_id: b"0", follower.member_id: b"1"})
    assert (await waiting).assignment == b"1"


async def test_an_assignment_waits_for_the_log(node):
    joined = await node.join()
    node.shared_log.hold_high_watermark(SHARD)
    syncing = asyncio.create_task(node.sync(joined, **{joined.member_id: b"all"}))
    await node.until(lambda: _holds(node.shard.pending_commands == 1))
    assert not syncing.done()
    node.shared_log.release_high_watermark(SHARD)
    assert (await syncing).assignment == b"all"
    stored = node.shard.state.committed(GROUPS, ("g",))
    assert stored.generation == 1
    assert stored.members[0].client_host == "/10.0.0.1"
    assert stored.state_timestamp_ms == node.clock.wall_ms


async def _holds(condition):
    return condition


@pytest.mark.parametrize("session_ms", [5_999, 10_001])
async def test_a_session_timeout_outside_the_bounds_is_refused(session_ms):
    settings = replace(SETTINGS, min_session_timeout_ms=6_000, max_session_timeout_ms=10_000)
    async with running_node(settings=settings) as node:
        answer = await node.join(session_timeout_ms=session_ms)
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


async def test_requests_without_a_group_id_are_refused(node):
    joined = await node.stable()
    assert (await node.join(group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await node.sync(joined, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert await node.beat(joined, group="") == ErrorCode.INVALID_GROUP_ID
    leave = await node.ask(messages.LeaveGroupRequest(group_id="", members=[]), 5)
    assert leave.error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_group_that_does_not_exist_knows_nobody(node):
    joined = await node.stable()
    assert await node.beat(joined, group="h") == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await node.sync(joined, group="h")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await _leave(node, joined.member_id, group="h"))[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await node.join(group="h", member_id="who")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_sync_of_version_5_must_name_the_protocol(node):
    joined = await node.join()
    request = messages.SyncGroupRequest(
        group_id="g", generation_id=1, member_id=joined.member_id, protocol_name="range"
    )
    assert (await node.ask(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def _leave(node, *member_ids, group="g"):
    members = [messages.LeaveGroupRequest.MemberIdentity(member_id=one) for one in member_ids]
    answer = await node.ask(messages.LeaveGroupRequest(group_id=group, members=members), 5)
    assert answer.error_code == 0
    return [one.error_code for one in answer.members]


@pytest.mark.parametrize("version", range(3))
async def test_one_member_leaves_in_old_versions(node, version):
    joined = await node.stable()
    request = messages.LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    assert (await node.ask(request, version)).error_code == 0
    assert (await node.ask(request, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_several_members_leave_in_new_versions(node):
    joined = await node.stable()
    assert await _leave(node, joined.member_id, "who") == [0, ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_silent_member_is_out_after_its_session():
    async def falls_silent():
        async with running_node() as node:
            joined = await node.stable(session_timeout_ms=20)

            async def is_out():
                return await node.fetch_raw(version=8) and node.shard.state.committed(GROUPS, ("g",)).members == ()

            await node.until(is_out)
            assert await node.beat(joined) == ErrorCode.UNKNOWN_MEMBER_ID

    virtual_time.run(falls_silent)


async def test_a_client_that_goes_away_while_it_waits_harms_nobody(node):
    joined = await node.stable()
    waiting = asyncio.create_task(node.join(3))
    await asyncio.sleep(0)
    waiting.cancel()
    again = await asyncio.wait_for(node.join(member_id=joined.member_id), PATIENCE_S)
    assert len(again.members) == 2


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_committed_and_fetched_by_name(node, version):
    assert await node.commit({("t", 0): 42}, version, metadata="note") == [0]
    for fetch_version in range(1, 10):
        found = await node.fetch("t", version=fetch_version)
        assert found == {("t", 0): (42, "note", 0), ("t", 1): (-1, "", 0)}


async def test_offsets_are_committed_and_fetched_by_id(node):
    topic_id = node.topics.ids["t"]
    assert await node.commit({(topic_id, 0): 42}, 10) == [0]
    assert await node.fetch(topic_id, version=10) == {(topic_id, 0): (42, "", 0), (topic_id, 1): (-1, "", 0)}
    assert (await node.fetch("t"))["t", 0] == (42, "", 0)


async def test_unknown_topics_and_partitions_are_refused_one_by_one(node):
    assert await node.commit({("t", 0): 1, ("t", 3): 1, ("t", -1): 1, ("nope", 0): 1}) == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await node.commit({(uuid.uuid4(), 0): 1, (None, 0): 1}, 10) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    strange = uuid.uuid4()
    found = await node.fetch(strange, version=10)
    assert found[strange, 0] == (-1, "", ErrorCode.UNKNOWN_TOPIC_ID)


async def test_metadata_that_is_too_large_is_refused(node):
    assert await node.commit({("t", 0): 1}, metadata="x" * 4_096) == [0]
    assert await node.commit({("t", 0): 2}, metadata="x" * 4_097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert (await node.fetch("t"))["t", 0][0] == 1


async def test_members_commit_with_their_generation(node):
    joined = await node.stable()
    assert await node.commit({("t", 0): 1}, joined=joined) == [0]
    assert await node.commit({("t", 0): 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    joined.generation_id = 7
    assert await node.commit({("t", 0): 1}, joined=joined) == [ErrorCode.ILLEGAL_GENERATION]


async def test_a_commit_of_a_member_to_no_group_is_refused_as_its_version_knows(node):
    joined = await node.stable()
    assert await node.commit({("t", 0): 1}, 9, "h", joined) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert await node.commit({("t", 0): 1}, 8, "h", joined) == [ErrorCode.ILLEGAL_GENERATION]
    await node.commit({("t", 0): 1}, 8, "h")
    assert await node.commit({("t", 0): 1}, 8, "h", joined) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_all_offsets_of_a_group_are_fetched_at_once(node):
    topic_id = node.topics.create("u")
    await node.commit({("t", 1): 1, ("u", 0): 2})
    await node.commit({("t", 0): 9}, group="other")
    for version in range(2, 10):
        found = await node.fetch(version=version, everything=True)
        assert found == {("t", 1): (1, "", 0), ("u", 0): (2, "", 0)}
    del node.topics.ids["t"]
    assert await node.fetch(version=10, everything=True) == {(topic_id, 0): (2, "", 0)}


async def test_several_groups_are_fetched_at_once(node):
    await node.commit({("t", 0): 1})
    await node.commit({("t", 0): 2}, group="h")
    group_class = messages.OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [group_class(group_id=one, topics=None) for one in ("g", "h", "nobody")]
    answer = await node.ask(messages.OffsetFetchRequest(groups=groups, require_stable=True), 9)
    assert [one.group_id for one in answer.groups] == ["g", "h", "nobody"]
    assert [[part.committed_offset for topic in one.topics for part in topic.partitions] for one in answer.groups] == [
        [1],
        [2],
        [],
    ]


async def test_offsets_are_answered_only_when_they_are_committed(node):
    node.shared_log.hold_high_watermark(SHARD)
    committing = asyncio.create_task(node.commit({("t", 0): 1}))
    await node.until(lambda: _holds(node.shard.pending_commands == 1))
    fetching = asyncio.create_task(node.fetch("t"))
    await asyncio.sleep(0)
    assert not committing.done()
    assert not fetching.done()
    node.shared_log.release_high_watermark(SHARD)
    assert await committing == [0]
    assert (await fetching)["t", 0][0] == 1


async def test_offsets_of_a_deleted_topic_go_and_those_of_its_successor_stay(node):
    old_id = node.topics.ids["t"]
    await node.commit({("t", 0): 1, ("t", 1): 1})
    new_id = node.topics.create("t")
    assert (await node.fetch("t"))["t", 0][0] == -1, "an offset of a topic of the same name is none of this one's"
    assert await node.fetch(everything=True) == {}
    await node.commit({("t", 1): 5})
    await node.groups.topics_deleted([old_id], ["t"])
    assert {key for key, _ in node.shard.state.rows(GROUP_OFFSETS)} == {("g", "t", 1)}
    assert await node.fetch(new_id, version=10) == {(new_id, 0): (-1, "", 0), (new_id, 1): (5, "", 0)}


async def test_an_offset_committed_by_name_is_the_new_topics_though_the_node_had_not_heard_of_it(node):
    old_id, new_id = node.topics.ids["t"], None

    def create_anew():
        nonlocal new_id
        new_id = node.topics.create("t")

    await node.commit({("t", 0): 1})
    node.topics.unseen.append(create_anew)
    assert await node.commit({("t", 0): 5}) == [0]
    await node.groups.topics_deleted([old_id], ["t"])
    assert (await node.fetch("t"))["t", 0][0] == 5
    assert (await node.fetch(new_id, version=10))[new_id, 0][0] == 5


@pytest.mark.parametrize("version", [2, 9, 10])
async def test_an_offset_of_a_topic_that_was_created_a_moment_ago_is_taken(node, version):
    new_id = uuid.uuid4()

    def create():
        node.topics.ids["new"], node.topics.counts["new"] = new_id, 1

    node.topics.unseen.append(create)
    assert await node.commit({("new" if version < 10 else new_id, 0): 7}, version=version) == [0]
    assert (await node.fetch("new"))["new", 0][0] == 7


async def test_the_offset_of_a_deleted_topic_is_not_given_for_a_new_one_that_the_node_had_not_heard_of(node):
    await node.commit({("t", 0): 100})
    node.topics.unseen.append(lambda: node.topics.create("t"))
    assert (await node.fetch("t"))["t", 0][0] == -1
    await node.commit({("t", 0): 3})
    node.topics.unseen.append(lambda: node.topics.create("t"))
    assert await node.fetch(everything=True) == {}


async def test_a_topic_that_is_named_by_its_id_needs_no_question_once_it_is_known(node):
    topic_id, before = node.topics.ids["t"], node.topics.caught_up
    assert await node.commit({(topic_id, 0): 7}, version=10) == [0]
    assert (await node.fetch(topic_id, version=10))[topic_id, 0][0] == 7
    assert node.topics.caught_up == before


async def test_a_node_that_knows_that_it_is_behind_has_the_client_ask_again(node):
    def behind():
        raise CoordinatorLoadingError("the topics are read")

    node.topics.unseen += [behind, behind]
    assert await node.commit({("t", 0): 1, ("unknown", 0): 1}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert await node.commit({("t", 0): 1}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert (await node.fetch("t"))["t", 0][0] == -1, "nothing was stored"


async def test_a_node_that_does_not_lead_the_group_says_so_without_a_question(node):
    node.shared_log.set_leader(SHARD, None)
    await node.until(lambda: _holds(not node.shard.leading))
    assert await node.commit({("t", 0): 1}) == [ErrorCode.NOT_COORDINATOR]
    assert node.topics.caught_up == 0


async def test_while_offsets_of_a_deleted_topic_go_the_event_loop_serves_others(node):
    topic_id, other_id, many = node.topics.ids["t"], node.topics.create("u"), 3000
    offsets = {
        ("t", number): CommittedOffset(offset=1, commit_timestamp_ms=1, topic_id=topic_id) for number in range(many)
    }
    offsets |= {
        ("u", number): CommittedOffset(offset=1, commit_timestamp_ms=1, topic_id=other_id) for number in range(many)
    }
    written = [
        OffsetRecord(group_id="large", topic=topic, partition=number, value=value)
        for (topic, number), value in offsets.items()
    ]
    await node.shard.submit(lambda command: [command.emit(record) for record in written])
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    await node.groups.topics_deleted([uuid.uuid4()], ["u"])  # of which nothing has to go
    other.cancel()
    assert turns >= len(offsets) / SLICE_UNITS
    await node.groups.topics_deleted([topic_id], ["t"])
    assert {topic for (_, topic, _), _ in node.shard.state.rows(GROUP_OFFSETS)} == {"u"}


async def test_a_node_that_does_not_lead_the_groups_leaves_offsets_of_a_deleted_topic_and_says_no_error(node):
    await node.commit({("t", 0): 1})
    node.shared_log.set_leader(SHARD, None)
    await node.until(lambda: _holds(not node.shard.leading))
    await node.groups.topics_deleted([node.topics.ids["t"]], ["t"])
    assert {key for key, _ in node.shard.state.rows(GROUP_OFFSETS)} == {("g", "t", 0)}


async def test_offsets_and_groups_expire(node):
    joined = await node.stable()
    await node.commit({("t", 0): 1}, joined=joined)
    await node.commit({("t", 0): 1}, group="simple")
    await _leave(node, joined.member_id)
    await node.until(lambda: _holds(node.shard.state.committed(GROUPS, ("g",)).generation == 2))
    node.clock.wall_ms += SETTINGS.offsets_retention_ms - 1
    await node.expire_offsets()
    assert (await node.fetch("t"))["t", 0][0] == 1
    node.clock.wall_ms += 1
    await node.expire_offsets()
    assert list(node.shard.state.rows(GROUP_OFFSETS)) == []
    assert list(node.shard.state.rows(GROUPS)) == []
    assert await node.commit({("t", 0): 1}, joined=joined) == [ErrorCode.GROUP_ID_NOT_FOUND]


async def test_an_old_clients_retention_is_kept(node):
    await node.commit({("t", 0): 1}, 4, retention_time_ms=100)
    node.clock.wall_ms += 99
    await node.expire_offsets()
    assert (await node.fetch("t"))["t", 0][0] == 1
    node.clock.wall_ms += 1
    await node.expire_offsets()
    assert (await node.fetch("t"))["t", 0][0] == -1


async def test_offsets_stay_for_their_retention_though_the_clock_goes_ahead(node):
    await node.commit({("t", 0): 1})
    await node.commit({("t", 1): 1}, 4, retention_time_ms=100)
    node.clock.jump(2 * SETTINGS.offsets_retention_ms)
    await node.expire_offsets()
    found = await node.fetch("t")
    assert (found["t", 0][0], found["t", 1][0]) == (1, 1)
    node.clock.wall_ms += SETTINGS.offsets_retention_ms
    await node.expire_offsets()
    assert list(node.shard.state.rows(GROUP_OFFSETS)) == []


async def test_a_living_group_does_not_expire(node):
    joined = await node.stable()
    await node.expire_offsets()
    assert await node.beat(joined) == 0
    assert node.shard.state.committed(GROUPS, ("g",)) is not None
    waiting = await node.ask(
        messages.JoinGroupRequest(
            group_id="h",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        9,
    )
    await node.expire_offsets()
    assert (await node.join(group="h", member_id=waiting.member_id)).error_code == 0


async def test_expiry_happens_by_itself():
    topics, clock = Topics(), AdjustableClock()
    topics.create("t")
    settings = replace(SETTINGS, offsets_retention_check_interval_ms=5)
    async with running_node(topics=topics, clock=clock, settings=settings) as node:
        await node.commit({("t", 0): 1})
        clock.wall_ms += settings.offsets_retention_ms

        async def is_gone():
            return (await node.fetch("t"))["t", 0][0] == -1

        await node.until(is_gone)


# --- leadership -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_store", [True, False])
async def test_groups_and_offsets_survive_a_restart(keeps_store):
    log, topics, store = SharedLog(), Topics(), MemoryCoordinatorStore()
    topics.create("t")
    async with running_node(log, topics, store=store) as node:
        joined = await node.stable()
        await node.commit({("t", 0): 7}, joined=joined)
    async with running_node(log, topics, store=store if keeps_store else None) as node:
        assert await node.beat(joined) == 0
        assert (await node.sync(joined)).assignment == b"all"
        assert (await node.fetch("t"))["t", 0][0] == 7
        again = await node.join(member_id=joined.member_id)
        assert again.generation_id == 2


async def test_who_waits_is_sent_away_when_leadership_is_lost_and_served_when_it_is_back(node):
    joined = await node.stable()
    waiting = asyncio.create_task(node.join(3))
    await node.until(lambda: _is_rebalancing(node, joined))
    node.shared_log.set_leader(SHARD, 2)
    assert (await asyncio.wait_for(waiting, PATIENCE_S)).error_code == ErrorCode.NOT_COORDINATOR
    assert await node.beat(joined) == ErrorCode.NOT_COORDINATOR
    assert (await node.join()).error_code == ErrorCode.NOT_COORDINATOR
    assert (await node.sync(joined)).error_code == ErrorCode.NOT_COORDINATOR
    leave = messages.LeaveGroupRequest(group_id="g", members=[])
    assert (await node.ask(leave, 5)).error_code == ErrorCode.NOT_COORDINATOR
    assert await node.commit({("t", 0): 1, ("nope", 0): 1}) == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await node.fetch("t", version=1) == {
        ("t", 0): (-1, "", ErrorCode.NOT_COORDINATOR),
        ("t", 1): (-1, "", ErrorCode.NOT_COORDINATOR),
    }
    assert (await node.fetch_raw("t", version=2)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await node.fetch_raw("t", version=9)).groups[0].error_code == ErrorCode.NOT_COORDINATOR
    node.shared_log.set_leader(SHARD, 1)
    await asyncio.wait_for(node.shard.until_leading(), PATIENCE_S)
    await node.until(lambda: _is_served(node, joined))


async def _is_rebalancing(node, joined):
    return await node.beat(joined) == ErrorCode.REBALANCE_IN_PROGRESS


async def _is_served(node, joined):
    # While the groups are being loaded a heartbeat gets no error, so the commit tells more.
    return await node.commit({("t", 0): 1}, joined=joined) == [0]


async def test_a_lost_write_costs_the_members_a_retry_only(node):
    joined = await node.join()
    node.shared_log.fail_next_append(shard=SHARD)
    synced = await node.sync(joined, **{joined.member_id: b"all"})
    assert ErrorCode(synced.error_code) in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )
    await asyncio.wait_for(node.shard.until_leading(), PATIENCE_S)

    async def is_served():
        return (await node.join()).error_code == 0

    await node.until(is_served)


async def test_groups_of_an_earlier_term_are_not_asked(node):
    joined = await node.stable()
    # As if leadership was lost and won again with no other task having run in between.
    node.shard._leader.leadership.term += 1
    assert (await node.join(member_id=joined.member_id)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_while_the_shard_loads_members_are_not_disturbed():
    log = SharedLog()
    async with running_node(log) as node:
        joined = await node.stable()
        log.set_leader(SHARD, 2)
        await node.until(lambda: _holds(not node.shard.leading))
        log.pause_reads(1)
        log.set_leader(SHARD, 1)
        await node.until(lambda: _holds(node.shard.leader_hint == 1))
        assert await node.beat(joined) == 0
        assert (await node.sync(joined)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await node.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.resume_reads(1)
        await asyncio.wait_for(node.shard.until_leading(), PATIENCE_S)


# --- FindCoordinator --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_this_node_coordinates_every_group(node, version):
    if version < 4:
        answer = await node.ask(messages.FindCoordinatorRequest(key="g"), version)
    else:
        answers = await node.ask(messages.FindCoordinatorRequest(coordinator_keys=["g", ""]), version)
        answer, of_the_empty_key = answers.coordinators
        assert answer.key == "g"
        assert of_the_empty_key.error_code == 0
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "client.example", 9092)


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_there_are_no_other_coordinators(node, key_type, error):
    old = await node.ask(messages.FindCoordinatorRequest(key="x", key_type=key_type), 3)
    new = await node.ask(messages.FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type), 6)
    for answer in (old, new.coordinators[0]):
        assert answer.error_code == error
        assert answer.error_message
        assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)


# --- a store that is too far behind ----------------------------------------------------------------------------------


async def test_who_waits_for_an_assignment_that_is_refused_is_told_and_the_group_goes_on(node):
    joined = await node.join()
    with node.store_behind():
        synced = await asyncio.wait_for(node.sync(joined, **{joined.member_id: b"all"}), PATIENCE_S)
        assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await node.beat(joined) == ErrorCode.UNKNOWN_MEMBER_ID
    joined = await node.stable()
    assert await node.beat(joined) == 0
    assert node.shard.state.committed(GROUPS, ("g",)).leader == joined.member_id


async def test_a_group_of_which_a_write_was_refused_is_what_is_written_of_it(node):
    first = await node.stable(session_timeout_ms=60_000)
    with node.store_behind():
        joining = asyncio.create_task(node.join(group="g"))
        await node.until(lambda: _is_rebalancing(node, first))
        again = await node.join(member_id=first.member_id)
        await joining
        answer = await asyncio.wait_for(node.sync(again, **{again.member_id: b"all"}), PATIENCE_S)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await node.beat(first) == 0, "the generation before is written down"
    assert [one.member_id for one in node.shard.state.committed(GROUPS, ("g",)).members] == [first.member_id]
