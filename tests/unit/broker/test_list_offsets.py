"""ListOffsets by timestamp where the coordinator's answer does not come."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers.list_offsets import PARALLEL_LOOKUPS, list_offsets
from diskless_core.config.tiering import TieringConfig
from diskless_core.diskless.commands import ListedOffset, PartitionKey
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ListOffsetsRequest
from diskless_core.side_by_side import PARTITIONS_AT_ONCE
from tests.support.guarantees import guarantee
from tests.support.virtual_time import run

Topic = ListOffsetsRequest.ListOffsetsTopic
LATEST, MAX_TIMESTAMP = -1, -3
PARTITIONS = 3 * PARALLEL_LOOKUPS


class Hanging:
    """A coordinator whose segments cannot be reached."""

    async def list_offsets(self, _: PartitionKey, timestamp: int) -> ListedOffset:
        if timestamp != LATEST:
            await asyncio.sleep(3600)
        return ListedOffset(offset=7)


def context(version: int) -> RequestContext:
    info = SimpleNamespace(key=lambda partition: PartitionKey(uuid.UUID(int=9).bytes, partition))
    topics = SimpleNamespace(by_name=lambda _: info, coordinator_of=lambda _: Hanging())
    services = SimpleNamespace(topics=topics, config=TieringConfig(remote_list_offsets_request_timeout_ms=20_000))
    return cast("RequestContext", SimpleNamespace(api_version=version, services=services))


def request(timestamp: int, timeout_ms: int, count: int = PARTITIONS) -> Any:
    partitions = [
        Topic.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
        for index in range(count)
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[Topic(name="t", partitions=partitions)], timeout_ms=timeout_ms
    )


@guarantee("Reads", "ListOffsets by timestamp ends after the request's time, or the broker's: REQUEST_TIMED_OUT.")
@pytest.mark.parametrize("timestamp", [1, MAX_TIMESTAMP])
@pytest.mark.parametrize(
    ("version", "timeout_ms", "seconds"), [(9, 5000, 20), (10, 5000, 5), (11, 60_000, 60), (11, 0, 20), (11, -1, 20)]
)
def test_a_lookup_by_timestamp_has_so_much_time(timestamp: int, version: int, timeout_ms: int, seconds: int) -> None:
    async def main() -> None:
        response = await list_offsets(context(version), request(timestamp, timeout_ms))
        answers = response.topics[0].partitions
        assert [answer.error_code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT] * PARTITIONS
        assert asyncio.get_running_loop().time() == pytest.approx(seconds)
        response = await list_offsets(context(version), request(LATEST, timeout_ms))
        assert [answer.offset for answer in response.topics[0].partitions] == [7] * PARTITIONS

    run(main)


def test_the_lookups_of_a_request_of_very_many_partitions_have_no_more_time_and_few_tasks() -> None:
    async def main() -> None:
        count = PARTITIONS_AT_ONCE + 100
        answering = asyncio.create_task(list_offsets(context(11), request(1, 20_000, count)))
        await asyncio.sleep(10)
        assert len(asyncio.all_tasks()) <= PARTITIONS_AT_ONCE + 2
        answers = (await answering).topics[0].partitions
        assert [answer.error_code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT] * count
        assert asyncio.get_running_loop().time() == pytest.approx(20)

    run(main)
