"""Where a partition begins, as a broker tells it that may have no copy of the partition's coordinator."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from diskless_core.broker.handlers import log_starts, produce
from diskless_core.diskless.commands import BatchResult, ListedOffset, PartitionKey, TimestampType
from diskless_core.protocol.errors import ErrorCode
from tests.support.peer_network import Network
from tests.support.shards import TOPIC, batch, commit_of, wal_key
from tests.support.virtual_time import VirtualClock, run

KEY, MISSING = PartitionKey(TOPIC, 0), PartitionKey(TOPIC, 9)


def topics_of(network: Network, node_id: int) -> Any:
    node = network.nodes[node_id]
    return SimpleNamespace(replica_of=lambda _: node.shards[0], coordinator_of=lambda _: node.directory.coordinators[0])


def on_two_nodes(test: Callable[[Network], Awaitable[None]]) -> None:
    """Node 1 leads; the partition begins at offset 2 of 3."""

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with Network(clock, {0: 1}) as network:
            for node in network.nodes.values():
                node.shards[0].find_offsets_with(earliest)
            coordinator = network.nodes[2].directory.coordinators[0]
            await coordinator.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
            await coordinator.commit_files([commit_of(wal_key("first"), batch(count=3))])
            await coordinator.delete_records(KEY, 2)
            await test(network)

    run(main)


async def earliest(shard: Any, partition: PartitionKey, timestamp: int) -> ListedOffset:
    head = shard.head(partition)
    if head is None:
        return ListedOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return ListedOffset(timestamp=timestamp, offset=head.log_start_offset)


def test_a_copy_that_has_caught_up_is_looked_at_and_no_other() -> None:
    async def test(network: Network) -> None:
        topics = topics_of(network, 1)
        assert [log_starts.known(topics, one) for one in (KEY, MISSING)] == [2, -1]
        network.nodes[1].shards[0].is_readable = False
        assert [log_starts.known(topics, one) for one in (KEY, MISSING)] == [None, None]

    on_two_nodes(test)


def test_without_a_copy_the_leader_is_asked() -> None:
    async def test(network: Network) -> None:
        assert await log_starts.asked(topics_of(network, 2), [KEY, MISSING]) == {KEY: 2, MISSING: -1}

    on_two_nodes(test)


@pytest.mark.parametrize("trouble", ["silent", "down"])
def test_a_leader_that_does_not_answer_is_not_waited_for_long(trouble: str) -> None:
    async def test(network: Network) -> None:
        getattr(network, trouble).add(1)
        began = asyncio.get_running_loop().time()
        assert await log_starts.asked(topics_of(network, 2), [KEY]) == {}
        assert asyncio.get_running_loop().time() - began <= log_starts.ANSWER_S

    on_two_nodes(test)


def produced(context: Any, plan: produce._Plan, results: Sequence[BatchResult]) -> asyncio.Future[Any]:
    """What a Produce request is answered whose batches have these results."""
    settled: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(results: Sequence[BatchResult]) -> None:
        settled.set_result(produce._response(context, plan, results))

    produce._settle_with_log_starts(context, plan, settle)(results)
    return settled


def topic() -> Any:
    return SimpleNamespace(client_error=lambda error, _: error)


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_refused_batch_is_answered_with_the_log_start_by_a_broker_with_a_copy_and_by_one_without(
    is_readable: bool,
) -> None:
    async def test(network: Network) -> None:
        network.nodes[2].shards[0].is_readable = is_readable
        topics = topics_of(network, 2)
        context = cast("Any", SimpleNamespace(services=SimpleNamespace(topics=topics)))
        data = cast("Any", SimpleNamespace(name="t", topic_id=None))
        at_once, unpacked = produce._Plan(), produce._Plan()
        at_once.log_starts[KEY] = log_starts.known(topics, KEY)
        refusal = produce._Refusal(ErrorCode.INVALID_TIMESTAMP, "too old", KEY)
        at_once.outcomes = [(cast("Any", None), data, [(0, refusal)])]
        unpacked.outcomes = [(topic(), data, [(0, 0)])]
        unpacked.batches = [(KEY, cast("Any", SimpleNamespace(timestamp_type=TimestampType.CREATE_TIME)))]

        for plan, results, error in (
            (at_once, [], ErrorCode.INVALID_TIMESTAMP),
            (unpacked, [BatchResult(ErrorCode.INVALID_RECORD)], ErrorCode.INVALID_RECORD),
        ):
            [answer] = (await produced(context, plan, results)).topics
            assert [(one.error_code, one.log_start_offset) for one in answer.partitions] == [(error, 2)]

    on_two_nodes(test)
