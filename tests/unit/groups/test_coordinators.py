"""Groups on several shards: a request goes to the shard that has the group, and each shard has its own leader."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.groups.administration import GroupAdministration
from diskless_core.groups.routing import shard_index
from diskless_core.groups.tables import GROUP_OFFSETS
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from diskless_core.side_by_side import AT_ONCE
from tests.support.admin_requests import describe_groups_request, list_groups_request
from tests.unit.groups.node import Topics, running_node

SHARDS = 4
GROUPS = [f"group-{number}" for number in range(12)]
"""Each shard has some of them."""


def groups_of(shard: int) -> list[str]:
    return [group for group in GROUPS if shard_index(group, SHARDS) == shard]


LOST = 2
KEPT = [group for group in GROUPS if group not in groups_of(LOST)]


@pytest.fixture
async def node():
    topics = Topics()
    topics.create("t")
    topics.create("u")
    async with running_node(topics=topics, shards=SHARDS) as one:
        for number, group in enumerate(GROUPS):
            assert await one.commit({("t", 0): number, ("u", 1): 1}, group=group) == [0, 0]
        yield one


async def lose_a_shard(node):
    lost = node.shards[LOST]
    node.shared_log.set_leader(lost.id, 2)
    await node.until(lambda: asyncio.sleep(0, not lost.leading and lost.leader_hint == 2))


async def listed(node):
    answer = await node.ask(list_groups_request(), 5)
    assert answer.error_code == 0
    return [group.group_id for group in answer.groups]


def fetch_request(groups):
    request = messages.OffsetFetchRequest
    return request(
        groups=[
            request.OffsetFetchRequestGroup(
                group_id=group,
                topics=[request.OffsetFetchRequestGroup.OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
            )
            for group in groups
        ]
    )


async def test_each_group_is_in_its_own_shard_and_in_no_other(node):
    for index, shard in enumerate(node.shards):
        assert {key[0] for key, _ in shard.state.rows(GROUP_OFFSETS)} == set(groups_of(index)) != set()


async def test_what_is_asked_of_several_groups_is_answered_for_each_in_their_order(node):
    fetched = (await node.ask(fetch_request(GROUPS), 9)).groups
    assert [one.group_id for one in fetched] == GROUPS
    assert [one.topics[0].partitions[0].committed_offset for one in fetched] == list(range(len(GROUPS)))
    described = (await node.ask(describe_groups_request(*GROUPS), 6)).groups
    assert [(one.group_id, one.error_code, one.group_state) for one in described] == [
        (group, 0, "Empty") for group in GROUPS
    ]
    assert await listed(node) == sorted(GROUPS)


async def test_groups_of_a_shard_that_moved_are_answered_for_by_its_leader_alone(node):
    await lose_a_shard(node)
    assert await listed(node) == sorted(KEPT)
    expected = [ErrorCode.NONE if group in KEPT else ErrorCode.NOT_COORDINATOR for group in GROUPS]
    described = (await node.ask(describe_groups_request(*GROUPS), 6)).groups
    assert [one.error_code for one in described] == expected
    assert [one.error_code for one in (await node.ask(fetch_request(GROUPS), 9)).groups] == expected
    consumers = await node.ask(
        messages.ConsumerGroupDescribeRequest(group_ids=groups_of(LOST), include_authorized_operations=False), 1
    )
    assert {one.error_code for one in consumers.groups} == {ErrorCode.NOT_COORDINATOR}
    gone = await node.ask(messages.DeleteGroupsRequest(groups_names=GROUPS), 2)
    assert [(one.group_id, one.error_code) for one in gone.results] == list(zip(GROUPS, expected, strict=True))
    for group in groups_of(LOST):
        assert await node.commit({("t", 0): 9}, group=group) == [ErrorCode.NOT_COORDINATOR]
        assert (await node.join(group=group)).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_request_to_delete_very_many_groups_makes_few_tasks(node, monkeypatch):
    tasks = []
    delete = GroupAdministration.delete

    async def counted(self, group_id):
        tasks.append(len(asyncio.all_tasks()))
        return await delete(self, group_id)

    monkeypatch.setattr(GroupAdministration, "delete", counted)
    before = len(asyncio.all_tasks())
    names = [*GROUPS, *(f"unknown-{number}" for number in range(4 * AT_ONCE))]
    gone = (await node.ask(messages.DeleteGroupsRequest(groups_names=names), 2)).results
    assert [one.group_id for one in gone] == names
    assert [one.error_code for one in gone[: len(GROUPS)]] == [ErrorCode.NONE] * len(GROUPS)
    assert {one.error_code for one in gone[len(GROUPS) :]} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert max(tasks) <= before + AT_ONCE


async def test_the_leader_of_each_group_is_told_in_one_answer(node):
    await lose_a_shard(node)
    node.shared_log.set_leader(node.shards[3].id, None)
    await node.until(lambda: asyncio.sleep(0, node.shards[3].leader_hint is None))
    request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)
    found = (await node.ask(request, 6)).coordinators
    for one in found:
        index = shard_index(one.key, SHARDS)
        if index == 3:
            assert one.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            assert (one.error_code, one.node_id) == (0, 2 if index == LOST else 1)
    assert [one.key for one in found] == GROUPS
    single = await node.ask(messages.FindCoordinatorRequest(key=groups_of(LOST)[0], key_type=0), 3)
    assert single.node_id == 2


async def test_offsets_of_a_deleted_topic_go_from_every_shard_that_is_led_here(node):
    await lose_a_shard(node)
    await node.groups.topics_deleted([node.topics.ids["t"]], ["t"])
    for index, shard in enumerate(node.shards):
        left = {key[1] for key, _ in shard.state.rows(GROUP_OFFSETS)}
        assert left == ({"t", "u"} if index == LOST else {"u"})


async def test_a_shard_that_is_lost_lets_only_its_own_members_go(node):
    away, here = groups_of(LOST)[0], KEPT[0]
    members = {group: await node.stable(group) for group in (away, here)}
    await lose_a_shard(node)
    assert await node.beat(members[away], group=away) == ErrorCode.NOT_COORDINATOR
    assert await node.beat(members[here], group=here) == 0
    node.shared_log.set_leader(node.shards[LOST].id, 1)
    await node.until(lambda: is_answered(node, members[away], away))
    assert await node.beat(members[away], group=away) == 0, "it goes on with its generation"


async def is_answered(node, member, group):
    return await node.beat(member, group=group) != ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("count", [1, 300])
async def test_a_request_for_very_many_groups_is_no_task_for_each(node, count):
    described = messages.ConsumerGroupDescribeRequest(group_ids=GROUPS * count, include_authorized_operations=False)
    requests = [
        (fetch_request(GROUPS * count), 8, "groups"),
        (describe_groups_request(*GROUPS * count), 5, "groups"),
        (described, 1, "groups"),
    ]
    for request, version, field in requests:
        begun = asyncio.all_tasks()
        answering = asyncio.create_task(node.ask(request, version))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks() - begun) <= 2 * SHARDS + 1
        answer = await answering
        assert [one.group_id for one in getattr(answer, field)] == GROUPS * count
