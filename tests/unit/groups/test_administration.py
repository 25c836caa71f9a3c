"""What administrators ask of groups: lists, descriptions, deletions."""

from __future__ import annotations

import asyncio
import struct

import pytest

from diskless_core.groups.tables import GROUP_OFFSETS, GROUPS
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from tests.support.admin_requests import (
    delete_groups_request,
    describe_groups_request,
    list_groups_request,
    offset_delete_request,
)
from tests.unit.groups.node import SHARD, running_node

ALL_OPERATIONS = {3, 6, 8, 10, 11}


def subscription(*topics):
    """Metadata of a consumer that subscribes to topics."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@pytest.fixture
async def node():
    async with running_node() as one:
        one.topics.create("t")
        yield one


async def listed(node, states=(), types=(), version=5):
    answer = await node.ask(list_groups_request(states, types), version)
    assert answer.error_code == 0
    return {group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in answer.groups}


async def described(node, group, version=6, **options):
    [answer] = (await node.ask(describe_groups_request(group, **options), version)).groups
    assert answer.group_id == group
    return answer


async def deleted(node, *groups, version=2):
    answer = await node.ask(delete_groups_request(*groups), version)
    return {result.group_id: ErrorCode(result.error_code) for result in answer.results}


async def offsets_deleted(node, partitions, group="g"):
    answer = await node.ask(offset_delete_request(group, partitions), 0)
    codes = {(t.name, p.partition_index): ErrorCode(p.error_code) for t in answer.topics for p in t.partitions}
    return ErrorCode(answer.error_code), codes


async def leave(node, joined, group="g"):
    identity = messages.LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
    answer = await node.ask(messages.LeaveGroupRequest(group_id=group, members=[identity]), 5)
    assert answer.error_code == 0


# --- ListGroups ------------------------------------------------------------------------------------------------------


async def test_groups_are_listed_with_type_and_state(node):
    await node.stable("used")
    await node.join(group="joining")
    await node.commit({("t", 0): 1}, group="simple")

    assert await listed(node) == {
        "used": ("consumer", "Stable", "classic"),
        "joining": ("consumer", "CompletingRebalance", "classic"),
        "simple": ("", "Empty", "classic"),
    }


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (["stable"], [], {"used"}),
        (["Empty", "Stable"], [], {"used", "simple"}),
        (["Dead"], [], set()),
        ([], ["CLASSIC"], {"used", "simple"}),
        ([], ["consumer", "share"], set()),
        (["Empty"], ["classic"], {"simple"}),
    ],
)
async def test_filters_by_state_and_type_in_any_case(node, states, types, expected):
    await node.stable("used")
    await node.commit({("t", 0): 1}, group="simple")

    assert set(await listed(node, states, types)) == expected


@pytest.mark.parametrize("version", range(6))
async def test_a_list_fits_every_version(node, version):
    await node.stable("used")
    answer = await node.ask(list_groups_request(), version)
    assert [(group.group_id, group.protocol_type) for group in answer.groups] == [("used", "consumer")]


async def test_a_node_that_does_not_lead_lists_nothing_and_sends_whoever_asks_for_a_group_elsewhere(node):
    await node.commit({("t", 0): 1}, group="elsewhere")
    node.shared_log.set_leader(SHARD, None)
    await node.until(lambda: _is_deposed(node))
    listed = await node.ask(list_groups_request(), 5)
    assert (listed.error_code, list(listed.groups)) == (ErrorCode.NONE, [])
    described = (await node.ask(describe_groups_request("g"), 6)).groups[0]
    assert described.error_code == ErrorCode.NOT_COORDINATOR
    assert await deleted(node, "g") == {"g": ErrorCode.NOT_COORDINATOR}
    assert (await offsets_deleted(node, {"t": [0]}))[0] is ErrorCode.NOT_COORDINATOR


async def _is_deposed(node):
    return not node.shard.leading


# --- DescribeGroups --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_a_stable_group_is_described_with_what_its_members_do(node, version):
    joined = await node.stable(group_instance_id="static" if version >= 4 else None)

    group = await described(node, "g", version)

    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    [member] = group.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "app", "/10.0.0.1")
    assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"meta", b"all")
    if version >= 4:
        assert member.group_instance_id == "static"


async def test_a_rebalancing_group_has_members_but_no_protocol_yet(node):
    await node.join()

    group = await described(node, "g")

    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [bytes(member.member_metadata) for member in group.members] == [b""]


async def test_a_group_without_members_is_empty(node):
    await leave(node, await node.stable())
    await node.commit({("t", 0): 1}, group="simple")

    group, simple = await described(node, "g"), await described(node, "simple")

    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "consumer", [])
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])


@pytest.mark.parametrize("version", range(7))
async def test_an_unknown_group_is_dead_and_in_version_6_an_error(node, version):
    group = await described(node, "unknown", version)

    assert group.group_state == "Dead"
    if version < 6:
        assert group.error_code == 0
    else:
        assert (group.error_code, group.error_message) == (69, "Group unknown not found.")


async def test_allowed_operations_are_shown_to_those_who_ask(node):
    await node.stable()

    assert (await described(node, "g", operations=True)).authorized_operations == ALL_OPERATIONS
    assert (await described(node, "g")).authorized_operations is None


# --- DeleteGroups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_groups_without_members_are_deleted_with_their_offsets(node, version):
    joined = await node.stable()
    await node.commit({("t", 0): 1, ("t", 1): 2}, joined=joined)
    await leave(node, joined)
    await node.commit({("t", 0): 1}, group="simple")
    await node.stable("used")

    assert await deleted(node, "g", "simple", "used", "unknown", "g", version=version) == {
        "g": ErrorCode.NONE,
        "simple": ErrorCode.NONE,
        "used": ErrorCode.NON_EMPTY_GROUP,
        "unknown": ErrorCode.GROUP_ID_NOT_FOUND,
    }

    assert set(await listed(node)) == {"used"}
    assert [key for key, _ in node.shard.state.rows(GROUPS)] == [("used",)]
    assert list(node.shard.state.rows(GROUP_OFFSETS)) == []
    assert await deleted(node, "g") == {"g": ErrorCode.GROUP_ID_NOT_FOUND}


async def test_a_deleted_group_begins_anew(node):
    first = await node.stable()
    await leave(node, first)
    assert (await deleted(node, "g"))["g"] is ErrorCode.NONE

    assert (await node.stable()).generation_id == 1


async def test_a_group_stays_deleted_after_a_restart():
    log = SharedLog()
    async with running_node(log) as node:
        node.topics.create("t")
        await node.commit({("t", 0): 1})
        await deleted(node, "g")
    async with running_node(log) as again:
        assert await listed(again) == {}


async def test_an_offset_whose_commit_is_under_way_goes_with_its_group(node):
    await node.commit({("t", 0): 1})
    node.shared_log.hold_high_watermark(SHARD)
    committing = asyncio.create_task(node.commit({("t", 1): 1}))
    await node.until(lambda: _pending(node, 1))
    deleting = asyncio.create_task(deleted(node, "g"))
    await node.until(lambda: _pending(node, 2))
    node.shared_log.release_high_watermark(SHARD)

    assert await committing == [0]
    assert await deleting == {"g": ErrorCode.NONE}
    assert list(node.shard.state.rows(GROUP_OFFSETS)) == []


async def _pending(node, commands):
    return node.shard.pending_commands == commands


# --- OffsetDelete ----------------------------------------------------------------------------------------------------


async def test_offsets_of_topics_that_nobody_subscribes_to_are_deleted(node):
    node.topics.create("u")
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))
    joined = await node.stable(protocols=[protocol])
    await node.commit({("t", 0): 1, ("u", 0): 2, ("u", 1): 3}, joined=joined)

    assert await offsets_deleted(node, {"t": [0], "u": [0, 2], "absent": [0]}) == (
        ErrorCode.NONE,
        {
            ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("u", 0): ErrorCode.NONE,
            ("u", 2): ErrorCode.NONE,
            ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    assert {key[1:] for key, _ in node.shard.state.rows(GROUP_OFFSETS)} == {("t", 0), ("u", 1)}


async def test_every_topic_counts_as_subscribed_while_a_group_rebalances(node):
    joined = await node.stable()
    await node.commit({("t", 0): 1}, joined=joined)
    await node.join(member_id=joined.member_id)

    assert (await offsets_deleted(node, {"t": [0]}))[1] == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


async def test_offsets_of_a_group_without_members_are_deleted(node):
    await node.commit({("t", 0): 1, ("t", 1): 1}, group="simple")

    assert await offsets_deleted(node, {"t": [0]}, "simple") == (ErrorCode.NONE, {("t", 0): ErrorCode.NONE})
    assert (await node.fetch("t", group="simple"))["t", 0][0] == -1
    assert (await node.fetch("t", group="simple"))["t", 1][0] == 1


async def test_offsets_are_not_deleted_from_groups_that_use_them_in_ways_unknown_here_or_do_not_exist(node):
    await node.join(group="connect", protocol_type="connect")

    assert (await offsets_deleted(node, {"t": [0]}, "connect"))[0] is ErrorCode.NON_EMPTY_GROUP
    assert (await offsets_deleted(node, {"t": [0]}, "unknown"))[0] is ErrorCode.GROUP_ID_NOT_FOUND
    assert (await offsets_deleted(node, {"t": [0]}, ""))[0] is ErrorCode.INVALID_GROUP_ID
