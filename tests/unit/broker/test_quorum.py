"""DescribeQuorum: how much one request can ask for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers.quorum import describe_quorum
from diskless_core.broker.shard_copies import Copy, ShardCopies
from diskless_core.clock import SystemClock
from diskless_core.protocol.messages import DescribeQuorumRequest
from diskless_core.shards import GROUPS

COPY = Copy(is_leading=True, term=1, next_offset=2, stored_offset=2, failure=None)
Asked = DescribeQuorumRequest.TopicData


async def all_copies() -> list[ShardCopies]:
    return [ShardCopies(shard=GROUPS.shard(index), copies={1: COPY}) for index in range(3)]


CONTEXT = cast(
    "RequestContext",
    SimpleNamespace(
        listener="client",
        services=SimpleNamespace(
            clock=SystemClock(),
            shard_copies=SimpleNamespace(all=all_copies),
            known_brokers=lambda *_, **__: [],
        ),
    ),
)


def asked(*indexes: int) -> Any:
    partitions = [Asked.PartitionData(partition_index=index) for index in indexes]
    return Asked(topic_name=GROUPS.topic, partitions=partitions)


@pytest.mark.parametrize(
    ("topics", "answered"),
    [
        ([asked()], [0, 1, 2]),
        ([asked()] * 1000, [0, 1, 2]),
        ([asked(2, 0, 2), asked(0)], [2, 0]),
        ([asked(2), asked()], [0, 1, 2]),
    ],
)
async def test_what_is_asked_for_many_times_is_answered_once(topics: list[Any], answered: list[int]) -> None:
    answer = await describe_quorum(CONTEXT, DescribeQuorumRequest(topics=topics))
    [topic] = answer.topics
    assert [one.partition_index for one in topic.partitions] == answered
    assert {one.error_code for one in topic.partitions} == {0}
