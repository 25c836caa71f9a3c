"""Brokers in two racks count what crosses them, and a command makes a bill of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from diskless_core.cluster.measured_traffic import Scrape, parsed
from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.requests import create_topic, fetch, produce
from tests.support.waiting import wait_until
from tests.support.wire import WireClient

SIZE = 20_000
TIMEOUT_S = 300.0


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[str, BrokerProcess]]:
    made = {
        rack: BrokerProcess(
            tmp_path / rack,
            {
                "node.id": str(node_id),
                "broker.rack": rack,
                "admin.listener": "http://127.0.0.1:0",
                "broker.session.timeout.ms": "60000",
                **on_one_bucket(tmp_path),
            },
        )
        for node_id, rack in ((1, "a"), (2, "b"))
    }
    with ThreadPoolExecutor(len(made)) as pool:
        list(pool.map(BrokerProcess.start, made.values()))
    yield made
    for broker in made.values():
        broker.end()


def scrape(broker: BrokerProcess) -> Scrape:
    return parsed(httpx.get(f"{broker.admin}/metrics", timeout=TIMEOUT_S).raise_for_status().text)


def value(scraped: Scrape, name: str, **labels: str) -> float:
    wanted = labels.items()
    found = scraped.values.items()
    return sum(number for (series, has), number in found if series == f"diskless_{name}_total" and wanted <= has)


def produced(wire: WireClient, topic: str) -> int | None:
    answer = produce(wire, topic, batch_of(bytes(SIZE)))
    return answer.base_offset if answer.error_code == ErrorCode.NONE else None


def cost(*options: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("diskless")), "cluster", "cost", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def test_what_crosses_racks_is_counted_and_billed(
    brokers: dict[str, BrokerProcess], tmp_path: Path, topic: str
) -> None:
    with brokers["a"].connect() as wire:
        create_topic(wire, topic)
    saved = {}
    for when in ("before", "after"):
        for rack, broker in brokers.items():
            saved[when, rack] = tmp_path / f"{when}-{rack}"
            saved[when, rack].write_text(httpx.get(f"{broker.admin}/metrics", timeout=TIMEOUT_S).text)
        if when == "before":
            with brokers["a"].connect(client_id="app,diskless_az=a") as wire:
                wait_until(lambda: produced(wire, topic) is not None, "a record is produced in the rack")
            with brokers["b"].connect(client_id="app,diskless_az=a") as wire:
                wait_until(lambda: produced(wire, topic) is not None, "a record is produced in another rack")
                wait_until(lambda: len(fetch(wire, topic, 0).records or b"") > 2 * SIZE, "both are read there")

    near, far = (scrape(brokers[rack]) for rack in "ab")
    assert [(one.node_id, one.rack) for one in (near, far)] == [("1", "a"), ("2", "b")]
    assert value(near, "client_bytes", kind="produced", racks="same") > SIZE
    assert value(far, "client_bytes", kind="produced", racks="other") > SIZE
    assert value(far, "client_bytes", kind="consumed", racks="other") > 2 * SIZE
    assert value(near, "client_bytes", kind="produced", racks="other") == 0
    assert value(near, "inter_broker_bytes", racks="other") + value(far, "inter_broker_bytes", racks="other") > 0
    assert value(near, "inter_broker_bytes", racks="same") == 0
    assert value(near, "object_store_requests", use="records", operation="put") > 0
    assert value(near, "object_store_requests", use="log") + value(far, "object_store_requests", use="log") > 0

    files = [part for (when, _), file in saved.items() for part in (f"--{when}", str(file))]
    billed = cost(*files, "--window", "10", "--json")
    assert billed.returncode == 0, billed.stderr
    said: Any = json.loads(billed.stdout)
    assert said["traffic"]["brokers"] == 2
    assert said["traffic"]["requests_are_billed"] is False, "they work on a folder"
    assert said["traffic"]["produced"] >= 2 * SIZE / 10
    assert said["traffic"]["clients_other_rack"] > 3 * SIZE / 10
    assert said["months"]["kafka"]["dollars"] > said["months"]["kafka_fetch_from_follower"]["dollars"] > 0

    live = cost("--url", brokers["b"].admin, "--window", "0.1")
    assert live.returncode == 0, live.stderr
    assert "a replicated Kafka" in live.stdout
    assert "no bucket is billed now" in live.stdout


def test_a_plan_is_billed_without_a_cluster() -> None:
    made = cost("--model", "brokers=36,coordinators=12,produce=100MiB/s,fanout=3", "--json")
    assert made.returncode == 0, made.stderr
    said = json.loads(made.stdout)
    assert said["traffic"]["requests_are_billed"] is True
    assert said["traffic"]["objects"] == said["traffic"]["commit_requests"] == 36 * 4, "one gateway, one request"
    assert said["traffic"]["consumed"] == 3 * (100 << 20)

    refused = cost("--model", "brokers=2,coordinators=1,produce=fast")
    assert (refused.returncode, "produce cannot be 'fast'" in refused.stderr) == (2, True), refused.stderr
