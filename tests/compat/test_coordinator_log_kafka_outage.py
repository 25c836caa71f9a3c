"""`coordinator_log=kafka` with a Kafka whose connections break, which falls silent, and which comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer

from diskless_core.plugin import kafka_client
from diskless_core.plugin.coordinator_log import CoordinatorLogError, EntryRefusedError
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    TIMEOUT_S,
    batch_of,
    numbered_batches,
    read_batches,
    same_content,
    settled_bytes,
    started,
)
from diskless_kafka.kafka_log import KafkaCoordinatorLog
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.kafka_log import kafka_log, log_properties
from tests.support.relay import Relay
from tests.support.waiting import wait_until

T = TypeVar("T")


@pytest.fixture(scope="module")
def relay(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """In front of a Kafka of the module's own, which tells its clients the relay's address."""
    kafka = ApacheKafka(kafka_jars, tmp_path_factory.mktemp("kafka-behind-a-relay"))
    _, _, port = kafka.bootstrap.rpartition(":")
    with Relay(int(port)) as relay:
        kafka.advertise(f"127.0.0.1:{relay.port}")
        try:
            relay.pass_on()
            kafka.start()
            yield relay
        finally:
            kafka.end()


@pytest.fixture
def properties(relay: Relay, request: pytest.FixtureRequest) -> dict[str, Any]:
    relay.pass_on()
    return log_properties(f"127.0.0.1:{relay.port}", f"{request.node.name[:60]}_")


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    """All that the log has opened. The length of each is how many messages it holds, on their way or queued."""
    opened, open_producer = list[Producer](), kafka_client.open_producer

    def remember(options: Mapping[str, Any]) -> Producer:
        opened.append(open_producer(options))
        return opened[-1]

    monkeypatch.setattr(kafka_client, "open_producer", remember)
    return opened


async def until_it_answers(call: Callable[[], Awaitable[T]]) -> T:
    """What a call of the log gives, which may fail as long as librdkafka does not know the leaders again."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await call()
            except CoordinatorLogError:
                continue


async def append_until_taken(log: KafkaCoordinatorLog, batch: bytes) -> None:
    await until_it_answers(lambda: log.append(SHARD, [batch]))


async def test_connections_lost_under_appends_lose_nothing_that_was_acknowledged_and_double_nothing(
    relay: Relay, properties: dict[str, Any], tmp_path: Path
) -> None:
    acknowledged: dict[int, bytes] = {}
    async with started(kafka_log(properties, tmp_path)) as log:
        for number in range(30):
            batches = [batch_of(b"%d, %d" % (number, part)) for part in range(20)]
            appending = asyncio.create_task(log.append(SHARD, batches))
            if number % 10 == 5:
                await asyncio.sleep(0)
                relay.drop()
            (outcome,) = await asyncio.gather(appending, return_exceptions=True)
            if isinstance(outcome, BaseException):
                assert type(outcome) is CoordinatorLogError, "the outcome is unknown: nothing was refused"
            else:
                acknowledged.update(zip(outcome, batches, strict=True))
        await append_until_taken(log, batch_of(b"last"))
    async with started(kafka_log(properties, tmp_path, node_id=2)) as log:
        entries = await read_batches(log, SHARD, 0, (await log.bounds(SHARD)).end)
    found = {entry.offset: settled_bytes(entry.data) for entry in entries}
    assert len(set(found.values())) == len(entries), "an entry is there twice"
    assert {offset: found.get(offset) for offset in acknowledged} == {
        offset: settled_bytes(batch) for offset, batch in acknowledged.items()
    }


async def test_while_kafka_is_silent_appends_end_and_what_is_known_is_read_and_then_all_goes_on_by_itself(
    relay: Relay, properties: dict[str, Any], producers: list[Producer], tmp_path: Path
) -> None:
    known, given_up = numbered_batches(10), numbered_batches(50, size_bytes=10_000)
    properties["append.timeout.ms"] = 1_500
    # so what is queued would not go by itself
    properties["producer.options"] = json.dumps({"delivery.timeout.ms": 600_000})
    async with started(kafka_log(properties, tmp_path)) as log:
        await append_until_taken(log, batch_of(b"first"))
        offsets = await until_it_answers(lambda: log.append(SHARD, known))
        relay.hang()
        for _ in range(3):
            with pytest.raises(CoordinatorLogError, match=r"within 1\.5 s") as error:
                await log.append(SHARD, given_up)
            assert not isinstance(error.value, EntryRefusedError)
            await asyncio.to_thread(wait_until, lambda: sum(map(len, producers)) == 0, "nothing is queued any more")
        assert same_content(await read_batches(log, SHARD, offsets[0], len(known)), known)
        relay.drop()
        relay.pass_on()
        recovered = batch_of(b"recovered")
        await append_until_taken(log, recovered)
        entries = await read_batches(log, SHARD, 0, (await until_it_answers(lambda: log.bounds(SHARD))).end)
        found = {entry.offset: settled_bytes(entry.data) for entry in entries}
        assert [found[offset] for offset in offsets] == [settled_bytes(batch) for batch in known]
        contents = list(found.values())
        assert contents.count(settled_bytes(recovered)) == 1
        assert not {settled_bytes(batch) for batch in given_up} & set(contents), "it was given up, and came later"
        await log.append(OTHER_SHARD, [batch_of(b"of another shard")])


async def test_a_kafka_that_is_not_there_refuses_the_start_in_time(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    properties = {**log_properties(f"127.0.0.1:{port}", "away_"), "initialization.timeout.ms": 300}
    with pytest.raises(CoordinatorLogError, match=f"127.0.0.1:{port}"):
        async with started(kafka_log(properties, tmp_path)):
            pass
