"""A broker whose advertised inter-broker address nobody reaches harms nobody, and says what is wrong with it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.protocol.messages import DescribeClusterRequest
from tests.support.batches import batch_of
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.requests import append, create_topic
from tests.support.waiting import wait_until

PARTITIONS = 4


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens at, and nobody else gets."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def fenced(broker: BrokerProcess) -> dict[int, bool]:
    """The brokers that one knows, and whether they are fenced."""
    with broker.connect() as wire:
        answer = wire.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
    return {one.broker_id: one.is_fenced for one in answer.brokers}


def produce(broker: BrokerProcess, text: bytes) -> None:
    with broker.connect() as wire:
        for partition in range(PARTITIONS):
            append(wire, "events", batch_of(text), partition=partition)


def test_a_broker_that_nobody_reaches_stays_fenced_with_a_reason_and_is_live_after_it_was_mended(
    tmp_path: Path, closed_port: int
) -> None:
    shared = {**on_one_bucket(tmp_path), "broker.session.timeout.ms": "60000"}
    good = BrokerProcess(tmp_path / "broker-1", {**shared, "node.id": "1", "admin.listener": "http://127.0.0.1:0"})
    properties = {**shared, "node.id": "2"}
    wrong = BrokerProcess(
        tmp_path / "broker-2", {**properties, "advertised.listeners": f"INTERNAL://127.0.0.1:{closed_port}"}
    )
    mended = BrokerProcess(tmp_path / "broker-2", properties)
    reason = (
        f"the controller does not reach it at 127.0.0.1:{closed_port}, which it advertises for INTERNAL: "
        f"nobody listens at 127.0.0.1:{closed_port}. Set INTERNAL in its advertised.listeners to an address by which "
        "all other brokers reach it"
    )
    try:
        good.start()
        with good.connect() as wire:
            create_topic(wire, "events", PARTITIONS)
        wrong.begin()
        wait_until(lambda: reason in wrong.log_text(), "a reason in the log of the broker that is not reached")
        assert "the controller keeps this broker fenced" in wrong.log_text()
        assert reason in good.log_text()
        assert fenced(good) == {1: False, 2: True}
        (told,) = [one for one in httpx.get(f"{good.admin}/cluster").json()["brokers"] if one["is_fenced"]]
        assert reason in told["fenced_reason"]
        shown = CliRunner().invoke(main, ["cluster", "status", "-b", good.bootstrap])
        assert f"broker 2 is fenced: {reason}" in shown.output
        produce(good, b"while it is fenced")
        assert wrong.is_running
        wrong.stop()
        produce(good, b"while it is away")
        mended.start()
        assert fenced(good) == fenced(mended) == {1: False, 2: False}
        for broker in (good, mended):
            produce(broker, b"by both")
    finally:
        for broker in (good, wrong, mended):
            broker.end()
