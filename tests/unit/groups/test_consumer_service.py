"""The consumer protocol through the handlers of a node: answers, timeouts, restarts, offsets and the other protocol."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from diskless_core.groups.settings import ConsumerTimes
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from tests.support import virtual_time
from tests.unit.groups.node import DEFAULT_TIMES, SETTINGS, SHARD, Topics, running_node

HEARTBEAT = messages.ConsumerGroupHeartbeatRequest


async def beat(node, member_id="m", epoch=0, version=1, group="g", owned=None, **fields):
    """One heartbeat; `owned` as partitions by topic."""
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], **fields}
        owned = owned or {}
    topics = None
    if owned is not None:
        topics = [
            HEARTBEAT.TopicPartitions(topic_id=node.topics.ids[topic], partitions=list(numbers))
            for topic, numbers in owned.items()
        ]
    request = HEARTBEAT(group_id=group, member_id=member_id, member_epoch=epoch, topic_partitions=topics, **fields)
    return await node.ask(request, version)


def assigned(node, answer):
    if answer.assignment is None:
        return None
    return {node.topics.name_of(one.topic_id): one.partitions for one in answer.assignment.topic_partitions}


async def describe(node, group="g", version=1):
    request = messages.ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    [described] = (await node.ask(request, version)).groups
    return described


async def listed(node, **filters):
    request = messages.ListGroupsRequest(**{"states_filter": [], "types_filter": [], **filters})
    answer = await node.ask(request, 5)
    return {one.group_id: (one.group_state, one.group_type, one.protocol_type) for one in answer.groups}


async def delete(node, group="g"):
    answer = await node.ask(messages.DeleteGroupsRequest(groups_names=[group]), 2)
    return answer.results[0].error_code


async def commit(node, epoch, version=9, member_id="m", partition=0, group="g"):
    topic_class = messages.OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic_class.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=5, committed_leader_epoch=-1, committed_metadata=""
    )
    request = messages.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[topic_class(name="t", partitions=[part])],
    )
    answer = await node.ask(request, version)
    return answer.topics[0].partitions[0].error_code


async def fetch(node, member_id, epoch, group="g"):
    group_class = messages.OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = group_class.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    asked = group_class(group_id=group, member_id=member_id, member_epoch=epoch, topics=[wanted])
    [answer] = (await node.ask(messages.OffsetFetchRequest(groups=[asked]), 9)).groups
    return answer.error_code or answer.topics[0].partitions[0].committed_offset


def sessions(timeout_ms):
    """The times of a group `g` whose members are out after this."""
    return {"g": replace(DEFAULT_TIMES, session_timeout_ms=timeout_ms)}


@pytest.fixture
def topics():
    topics = Topics()
    topics.create("t")
    return topics


@pytest.fixture
async def node(topics):
    async with running_node(topics=topics) as node:
        yield node


# --- requests --------------------------------------------------------------------------------------------------------


async def test_a_member_joins_and_hears_how_often_to_come(node):
    answer = await beat(node)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert assigned(node, answer) == {"t": [0, 1, 2]}


async def test_version_0_gives_out_member_ids(node):
    answer = await beat(node, "", version=0)
    assert answer.error_code == 0
    assert len(answer.member_id) == 22


async def test_a_refusal_says_why(node):
    answer = await beat(node, "x", 3)
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    await beat(node)
    answer = await beat(node, "x", 3)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "is not a member of group g" in answer.error_message


async def test_a_group_is_described_with_what_members_have_and_shall_have(node):
    await beat(node, instance_id="i", rack_id="r", server_assignor="range")
    await beat(node, "n")

    described = await describe(node)
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Reconciling", "range")
    assert (described.group_epoch, described.assignment_epoch) == (3, 3)
    assert described.authorized_operations
    first, second = described.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("m", "i", "r", 2)
    assert (first.client_id, first.client_host, first.member_type) == ("app", "/10.0.0.1", 1)
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], "")
    assert [(one.topic_name, one.partitions) for one in first.assignment.topic_partitions] == [("t", [0, 1, 2])]
    assert [(one.topic_name, one.partitions) for one in first.target_assignment.topic_partitions] == [("t", [0, 1])]
    assert second.assignment.topic_partitions == []


async def test_what_is_no_consumer_group_is_not_described(node):
    await node.stable("classic")
    unknown, classic, nameless = [await describe(node, group) for group in ("g", "classic", "")]
    assert unknown.error_code == classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic.error_message == "Group classic is not a consumer group."
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


# --- timeouts --------------------------------------------------------------------------------------------------------


async def test_a_member_that_does_not_come_is_out(topics):
    async with running_node(topics=topics, times=sessions(50)) as node:
        await beat(node)

        async def is_empty():
            return (await describe(node)).group_state == "Empty"

        await node.until(is_empty)
        assert (await beat(node, epoch=2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_comes_stays(topics):
    async def comes():
        async with running_node(topics=topics, times=sessions(400)) as node:
            await beat(node)
            await beat(node, "gone", subscribed_topic_names=[])

            async def only_one_is_left():
                assert (await beat(node, epoch=2)).error_code == 0
                return len((await describe(node)).members) == 1

            await node.until(only_one_is_left)

    virtual_time.run(comes)


def test_new_times_of_a_group_hold_from_its_next_heartbeats_on(topics):
    async def changes():
        clock = asyncio.get_running_loop()
        times = {}
        async with running_node(topics=topics, times=times) as node:
            await beat(node)
            await beat(node, "late")
            times["g"] = ConsumerTimes(session_timeout_ms=8_000, heartbeat_interval_ms=2_000)

            answer, changed_s = await beat(node, epoch=2), clock.time()
            elsewhere = await beat(node, group="h")

            assert (answer.heartbeat_interval_ms, elsewhere.heartbeat_interval_ms) == (2_000, 5_000)
            gone_s = {}
            async with asyncio.timeout(60):
                while len(gone_s) < 2:
                    present = {one.member_id for one in (await describe(node)).members}
                    gone_s |= {one: clock.time() - changed_s for one in {"m", "late"} - present - set(gone_s)}
                    await asyncio.sleep(0.1)
            assert 8 <= gone_s["m"] < 9
            assert 44 <= gone_s["late"] < 46

    virtual_time.run(changes)


def test_a_static_member_that_does_not_come_back_is_out(topics):
    async def leaves():
        async with running_node(topics=topics, times=sessions(50)) as node:
            await beat(node, instance_id="i")
            assert (await beat(node, epoch=-2, instance_id="i")).member_epoch == -2
            assert [one.member_epoch for one in (await describe(node)).members] == [-2]

            async def is_empty():
                return (await describe(node)).group_state == "Empty"

            await node.until(is_empty)

    virtual_time.run(leaves)


def test_a_member_that_does_not_give_up_in_time_is_out(topics):
    async def keeps_what_it_has():
        async with running_node(topics=topics) as node:
            await beat(node, rebalance_timeout_ms=30)
            await beat(node, "n")
            await beat(node, epoch=2)  # it hears that it has to give up, and says nothing

            async def is_out():
                return [one.member_id for one in (await describe(node)).members] == ["n"]

            await node.until(is_out)
            answer = await beat(node, "n", 3)
            assert assigned(node, answer) == {"t": [0, 1, 2]}

    virtual_time.run(keeps_what_it_has)


# --- restarts --------------------------------------------------------------------------------------------------------


async def test_members_go_on_after_a_restart(topics):
    log = SharedLog()
    async with running_node(log, topics) as node:
        await beat(node)
        await beat(node, "n")
    async with running_node(log, topics) as node:
        assert assigned(node, await beat(node, epoch=2)) == {"t": [0, 1]}
    async with running_node(log, topics) as node:
        assert (await beat(node, epoch=2, owned={"t": [0, 1]})).member_epoch == 3
        assert assigned(node, await beat(node, "n", 3)) == {"t": [2]}
        assert (await describe(node)).group_state == "Stable"


async def test_members_that_do_not_come_back_after_a_restart_are_out(topics):
    log = SharedLog()
    async with running_node(log, topics) as node:
        await beat(node)
        await beat(node, "n")
    async with running_node(log, topics, times=sessions(50)) as node:

        async def is_empty():
            return (await describe(node)).group_state == "Empty"

        await node.until(is_empty)


# --- offsets ---------------------------------------------------------------------------------------------------------


async def test_offsets_are_committed_and_fetched_with_the_member_epoch(node):
    await beat(node)
    assert await commit(node, 2) == 0
    assert await fetch(node, "m", 2) == 5
    assert await fetch(node, None, -1) == 5
    assert await fetch(node, "m", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert await fetch(node, "x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await fetch(node, "x", 1, group="other") == -1


async def test_commits_of_others_are_refused(node):
    await beat(node)
    assert await commit(node, 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(node, 2, member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(node, -1, member_id="") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(node, 2, version=8) == ErrorCode.UNSUPPORTED_VERSION


async def test_with_an_older_epoch_a_member_commits_what_it_has_had_since(node):
    await beat(node)
    node.topics.counts["t"] = 4
    assert (await beat(node, epoch=2)).member_epoch == 3

    assert await commit(node, 2, partition=0) == 0
    assert await commit(node, 2, partition=3) == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(node, 1, partition=0) == ErrorCode.STALE_MEMBER_EPOCH


async def test_anybody_may_commit_for_a_group_without_members(node):
    await beat(node)
    await beat(node, epoch=-1)
    assert await commit(node, -1, member_id="") == 0


async def test_offsets_of_a_topic_that_is_subscribed_to_are_not_deleted(node):
    node.topics.create("u")
    await beat(node)
    await commit(node, 2)
    topic_class = messages.OffsetDeleteRequest.OffsetDeleteRequestTopic
    parts = [topic_class.OffsetDeleteRequestPartition(partition_index=0)]
    request = messages.OffsetDeleteRequest(
        group_id="g", topics=[topic_class(name=name, partitions=parts) for name in ("t", "u")]
    )
    answer = await node.ask(request, 0)
    assert answer.error_code == 0
    errors = {one.name: one.partitions[0].error_code for one in answer.topics}
    assert errors == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "u": 0}


async def test_offsets_expire_when_nobody_subscribes_to_the_topic(node):
    await beat(node)
    await commit(node, 2)
    node.clock.wall_ms += SETTINGS.offsets_retention_ms
    await node.expire_offsets()
    assert await fetch(node, None, -1) == 5

    await beat(node, epoch=-1)
    await node.expire_offsets()
    assert await fetch(node, None, -1) == -1
    assert await listed(node) == {}


# --- administration --------------------------------------------------------------------------------------------------


async def test_new_topics_are_found_by_a_regular_expression_after_a_while(topics):
    async with running_node(topics=topics, settings=replace(SETTINGS, consumer_regex_refresh_ms=1_000)) as node:
        await beat(node, subscribed_topic_names=None, subscribed_topic_regex="t.*")
        await beat(node, epoch=2)
        node.topics.create("t2", 1)
        assert assigned(node, await beat(node, epoch=2)) is None
        node.clock.wall_ms += 1_000
        assert assigned(node, await beat(node, epoch=2)) == {"t": [0, 1, 2], "t2": [0]}


async def test_groups_of_both_protocols_are_listed(node):
    await beat(node)
    await node.stable("classic")
    both = {"g": ("Stable", "consumer", "consumer"), "classic": ("Stable", "classic", "consumer")}
    assert await listed(node) == both
    assert await listed(node, types_filter=["Consumer"]) == {"g": both["g"]}
    assert await listed(node, states_filter=["assigning"]) == {}


async def test_describe_groups_knows_only_classic_groups(node):
    await beat(node)
    request = messages.DescribeGroupsRequest(groups=["g"])
    old, new = [(await node.ask(request, version)).groups[0] for version in (5, 6)]
    assert (old.error_code, old.group_state) == (0, "Dead")
    assert (new.error_code, new.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")


async def test_a_group_with_members_is_not_deleted(node):
    await beat(node)
    await commit(node, 2)
    assert await delete(node) == ErrorCode.NON_EMPTY_GROUP

    await beat(node, epoch=-1)
    assert await delete(node) == 0
    assert await listed(node) == {}
    assert await fetch(node, None, -1) == -1
    assert await delete(node) == ErrorCode.GROUP_ID_NOT_FOUND


# --- the other protocol ----------------------------------------------------------------------------------------------


async def test_a_classic_group_with_members_stays_classic(node):
    joined = await node.stable("g")
    answer = await beat(node)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    assert await node.beat(joined) == 0


async def test_a_consumer_group_with_members_stays_one(node):
    await beat(node)
    assert (await node.join(group="g")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    heartbeat = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (await node.ask(heartbeat, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await beat(node, epoch=2)).error_code == 0


async def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(topics):
    log = SharedLog()
    async with running_node(log, topics) as node:
        joined = await node.stable("g")
        assert await node.commit({("t", 0): 5}, joined=joined) == [0]
        member = messages.LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
        await node.ask(messages.LeaveGroupRequest(group_id="g", members=[member]), 5)

        assert (await beat(node)).error_code == 0
        assert await fetch(node, "m", 2) == 5
    async with running_node(log, topics) as node:
        assert await listed(node) == {"g": ("Stable", "consumer", "consumer")}


async def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(topics):
    log = SharedLog()
    async with running_node(log, topics) as node:
        await beat(node)
        await commit(node, 2)
        await beat(node, epoch=-1)
        await node.stable("g")
        assert (await beat(node)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    async with running_node(log, topics) as node:
        assert (await listed(node))["g"][1] == "classic"
        assert await fetch(node, None, -1) == 5


async def test_a_consumer_group_that_comes_anew_while_its_empty_one_gives_way_keeps_the_id(topics):
    async with running_node(topics=topics) as node:
        await beat(node)
        await beat(node, epoch=-1)
        node.shared_log.hold_high_watermark(SHARD)
        joining = asyncio.create_task(node.join(version=3))

        async def is_giving_way():
            return node.shard.pending_commands == 1

        await node.until(is_giving_way)
        coming = asyncio.create_task(beat(node))
        await asyncio.sleep(0)
        node.shared_log.release_high_watermark(SHARD)
        assert (await coming).error_code == ErrorCode.NONE
        assert (await joining).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_the_first_answer_of_a_term_has_the_assignment_for_the_one_before_may_have_been_lost(topics):
    log = SharedLog()
    async with running_node(log, topics) as node:
        await beat(node)
        await beat(node, "n")
        lost = await beat(node, epoch=2)
        assert assigned(node, lost) == {"t": [0, 1]}
    async with running_node(log, topics) as node:
        again = await beat(node, epoch=2)
        assert (again.member_epoch, assigned(node, again)) == (2, {"t": [0, 1]})
        assert (await beat(node, epoch=2)).assignment is None
        given_up = await beat(node, epoch=2, owned={"t": [0, 1]})
        assert (given_up.member_epoch, given_up.assignment) == (3, None)
        assert assigned(node, await beat(node, "n", 3)) == {"t": [2]}


# --- where the groups are not ----------------------------------------------------------------------------------------


async def test_without_leadership_members_are_sent_to_look_for_the_coordinator(topics):
    async with running_node(topics=topics, times=sessions(50)) as node:
        await beat(node)
        node.shared_log.set_leader(SHARD, None)

        async def is_lost():
            return (await beat(node, epoch=2)).error_code == ErrorCode.NOT_COORDINATOR

        await node.until(is_lost)
        assert (await describe(node)).error_code == ErrorCode.NOT_COORDINATOR


# --- a store that is too far behind ----------------------------------------------------------------------------------


def test_a_member_that_fell_silent_while_nothing_could_be_stored_is_out_when_it_can(topics):
    async def falls_silent():
        async with running_node(topics=topics, times=sessions(200)) as node:
            assert (await beat(node)).error_code == 0
            with node.store_behind():
                await asyncio.sleep(0.5)
                assert (await describe(node)).members
            await node.until(lambda: _is_without_members(node))

    virtual_time.run(falls_silent)


def test_a_member_that_could_not_leave_is_out_after_its_session(topics):
    async def leaves():
        async with running_node(topics=topics, times=sessions(300)) as node:
            assert (await beat(node)).error_code == 0
            with node.store_behind():
                assert (await beat(node, epoch=-1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await node.until(lambda: _is_without_members(node))

    virtual_time.run(leaves)


async def _is_without_members(node):
    return not (await describe(node)).members
