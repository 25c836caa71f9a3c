"""A broker that stops tells its clients to go elsewhere before it closes their connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from diskless_core.broker import departure
from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of
from tests.support.cluster import LIMIT_S, Cluster, in_thread
from tests.support.requests import create_topic, fetch, metadata_request, produce, produce_request
from tests.support.wire import WireClient

TOPIC = "t"
STAYS, GOES = 1, 2


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop waits until its clients have closed their connections, however slow the machine is."""
    for name in ("NEWS_S", "QUIET_S", "LIMIT_S"):
        monkeypatch.setattr(departure, name, LIMIT_S)


def leader(wire: WireClient) -> int:
    """Who leads the topic's partition for those who ask here."""
    [topic] = wire.call(metadata_request(TOPIC), 12).topics
    return int(topic.partitions[0].leader_id)


def brokers(wire: WireClient) -> list[int]:
    return sorted(broker.node_id for broker in wire.call(metadata_request(TOPIC), 12).brokers)


def written_until_sent_away(wire: WireClient) -> int:
    """How many records are acknowledged until the broker says that it does not lead the partition any more."""
    for count in range(1_000_000):
        answer = produce(wire, TOPIC, batch_of(b"%d" % count))
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return count
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    raise AssertionError("the client was never sent away")


async def test_a_producer_hears_where_to_go_by_the_connection_that_it_has_and_no_request_of_it_is_dropped(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, {0: STAYS}) as cluster:
        writes = asyncio.Event()
        loop = asyncio.get_running_loop()

        def client() -> int:
            with cluster.connect(GOES) as wire:
                create_topic(wire, TOPIC)
                assert produce(wire, TOPIC, batch_of(b"first")).error_code == ErrorCode.NONE
                loop.call_soon_threadsafe(writes.set)
                count = written_until_sent_away(wire)
                assert leader(wire) == STAYS
                assert brokers(wire) == [STAYS, GOES], "it is no leader, and no stranger either before clients are gone"
                with cluster.connect(STAYS) as other:
                    assert produce(other, TOPIC, batch_of(b"last")).base_offset == count + 1
            return count

        clients = asyncio.create_task(in_thread(client))
        await writes.wait()
        await cluster.stop(GOES)
        await clients

        def look() -> list[int]:
            with cluster.connect(STAYS) as wire:
                return brokers(wire)

        assert await in_thread(look) == [STAYS]


async def test_a_consumer_is_sent_away_too_and_a_fetch_that_waits_is_answered_first(tmp_path: Path) -> None:
    async with Cluster(tmp_path, {0: STAYS}) as cluster:
        reads = asyncio.Event()
        loop = asyncio.get_running_loop()

        def client() -> None:
            with cluster.connect(GOES) as wire:
                create_topic(wire, TOPIC)
                loop.call_soon_threadsafe(reads.set)
                while (error := fetch(wire, TOPIC, 0, max_wait_ms=20).error_code) == ErrorCode.NONE:
                    pass
                assert error == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert leader(wire) == STAYS

        clients = asyncio.create_task(in_thread(client))
        await reads.wait()
        await cluster.stop(GOES)
        await clients


async def test_what_asks_for_no_answer_is_taken_to_the_end(tmp_path: Path) -> None:
    """An error has no other way to such a client than the end of its connection."""
    async with Cluster(tmp_path, {0: STAYS}) as cluster:
        writes = asyncio.Event()
        loop = asyncio.get_running_loop()

        def client() -> int:
            with cluster.connect(GOES) as wire:
                create_topic(wire, TOPIC)
                loop.call_soon_threadsafe(writes.set)
                count = written_until_sent_away(wire)
                wire.send(produce_request(TOPIC, {0: batch_of(b"unanswered")}, acks=0), 9, is_answered=False)
                assert leader(wire) == STAYS, "the connection is open"
            return count

        def look(count: int) -> None:
            with cluster.connect(STAYS) as wire:
                assert produce(wire, TOPIC, batch_of(b"after")).base_offset == count + 1

        clients = asyncio.create_task(in_thread(client))
        await writes.wait()
        await cluster.stop(GOES)
        count = await clients
        await in_thread(lambda: look(count))


async def test_the_last_broker_sends_nobody_away(tmp_path: Path) -> None:
    async with Cluster(tmp_path, {0: STAYS}, node_ids=(STAYS,)) as cluster:

        def connect() -> WireClient:
            wire = cluster.connect(STAYS)
            create_topic(wire, TOPIC)
            return wire

        with await in_thread(connect):
            await cluster.stop(STAYS)  # it does not wait for the client, which stays connected
