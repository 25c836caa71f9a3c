"""Three broker processes of one rack: what one of them has written, the others read from its memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

import pytest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.requests import append, create_topic, fetch, metadata_request
from tests.support.waiting import wait_until
from tests.support.wire import WireClient

RECORDS = 20
VALUES = [b"%d" % number for number in range(RECORDS)]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    folder: Path = tmp_path_factory.mktemp("rack")
    made = [
        BrokerProcess(
            folder / f"broker-{node_id}",
            {
                "node.id": str(node_id),
                **on_one_bucket(folder),
                "admin.listener": "http://127.0.0.1:0",
                "broker.rack": "a",
                "broker.session.timeout.ms": "60000",
            },
        )
        for node_id in (1, 2, 3)
    ]
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(BrokerProcess.start, made))
        yield made
    finally:
        for broker in made:
            broker.end()


@pytest.fixture
def topic(brokers: Sequence[BrokerProcess], request: pytest.FixtureRequest) -> str:
    """A topic that all of them know."""
    name: str = request.node.name
    for broker in brokers:
        with broker.connect() as wire:
            if controller_of(wire) == brokers.index(broker) + 1:
                create_topic(wire, name)
    for broker in brokers:
        with broker.connect() as wire:
            wait_until(lambda wire=wire: fetch(wire, name, 0).error_code == ErrorCode.NONE, "the topic is known")
    return name


def controller_of(wire: WireClient) -> int:
    controller: int = wire.call(metadata_request(), 12).controller_id
    return controller


def figure(brokers: Sequence[BrokerProcess], name: str) -> float:
    """One of their metrics, all brokers and labels together."""
    texts = []
    for broker in brokers:
        with urlopen(f"{broker.admin}/metrics", timeout=60) as answer:
            texts.append(answer.read().decode())
    return sum(
        float(value) for text in texts for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    )


def values_at(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Every value that a broker gives consumers."""
    found: list[bytes] = []
    with broker.connect() as wire:
        while len(found) < RECORDS:
            answer = fetch(wire, topic, len(found))
            assert answer.error_code == ErrorCode.NONE
            found += read_values(answer.records)
    return found


def test_what_one_broker_has_uploaded_the_others_read_from_its_memory(
    brokers: Sequence[BrokerProcess], topic: str
) -> None:
    before = figure(brokers, "diskless_store_reads_total")
    with brokers[0].connect() as wire:
        for value in VALUES:
            append(wire, topic, batch_of(value))
    for broker in brokers:
        with broker.connect() as wire:
            wait_until(lambda wire=wire: fetch(wire, topic, 0).high_watermark == RECORDS, "all is known")
        assert values_at(broker, topic) == VALUES
    asked, answered = (figure(brokers, f"diskless_peer_{name}") for name in ("reads_total", "read_seconds_count"))
    assert answered > 0
    # On a busy machine a broker may be late; then the object store is asked too.
    assert figure(brokers, "diskless_store_reads_total") - before <= asked - answered
    assert figure(brokers[:1], "diskless_peer_bytes_sent_total") > 0


def test_when_the_broker_that_wrote_it_is_killed_the_others_read_the_object_store(
    brokers: Sequence[BrokerProcess], topic: str
) -> None:
    with brokers[0].connect() as wire:
        for value in VALUES:
            append(wire, topic, batch_of(value))
    for broker in brokers[1:]:
        with broker.connect() as wire:
            wait_until(lambda wire=wire: fetch(wire, topic, RECORDS).high_watermark == RECORDS, "all is known")
    brokers[0].kill()
    try:
        for broker in brokers[1:]:
            assert values_at(broker, topic) == VALUES
    finally:
        brokers[0].start()
