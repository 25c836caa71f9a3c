"""Idempotent producers with five requests in flight, while brokers of their cluster are restarted and one is killed.

Their requests move from broker to broker each time. None of them may see a fatal error, and in the end every partition
has each of their records once and in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat.senders import (
    PARTITIONS,
    TOPIC,
    Java,
    Librdkafka,
    Sender,
    go_on,
    require_each_once_and_in_order,
)
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.requests import create_topic


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    made = [
        BrokerProcess(tmp_path / f"broker-{node_id}", {"node.id": str(node_id), **on_one_bucket(tmp_path)})
        for node_id in (1, 2, 3)
    ]
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(BrokerProcess.start, made))
        yield made
    finally:
        for broker in made:
            broker.end()


def test_producers_move_between_brokers_and_nothing_is_lost_doubled_or_reordered(
    brokers: list[BrokerProcess], kafka_jars: Path, tmp_path: Path
) -> None:
    with brokers[0].connect() as wire:
        create_topic(wire, TOPIC, PARTITIONS)
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    senders: list[Sender] = []
    with ExitStack() as stack:
        for sender in (
            Librdkafka("1", bootstrap),
            Librdkafka("2", bootstrap),
            Java("3", bootstrap, kafka_jars, tmp_path),
        ):
            stack.callback(sender.end)
            senders.append(sender)
        go_on(senders)
        for broker in brokers:
            broker.restart()
            go_on(senders)
        brokers[1].kill()
        brokers[1].start()
        go_on(senders)
    require_each_once_and_in_order(senders, bootstrap)
