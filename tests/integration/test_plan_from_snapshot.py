"""`diskless compact --plan --from-snapshot`: what a compaction would make, told without a broker."""

from __future__ import annotations

import json

import httpx
import pytest
from typer.testing import CliRunner, Result

from diskless_core.cli.main import main
from tests.support.batches import batch_of
from tests.support.broker import BrokerFactory
from tests.support.requests import append, create_topic
from tests.support.waiting import wait_until

SETTINGS = {
    "admin.listener": "http://127.0.0.1:0",
    "diskless.append.commit.interval.ms": "5",
    "metadata.log.max.snapshot.interval.ms": "1",
}


def test_it_is_the_plan_of_the_broker_when_nothing_has_happened_since(new_broker: BrokerFactory) -> None:
    broker = new_broker(SETTINGS)
    options = ["--from-snapshot", "-o", f"log.dirs={broker.folder / 'data'}"]

    def plan(*more: str) -> Result:
        return CliRunner().invoke(main, ["compact", "--plan", "--everything", *options, *more])

    with broker.connect() as wire:
        create_topic(wire, "t", 2)
        create_topic(wire, "other", 1)
        for number in range(4):
            append(wire, "t", batch_of(b"%d" % number), partition=number % 2)
        append(wire, "other", batch_of(b"more"))
    asked = httpx.get(f"{broker.admin}/compaction/plan", params={"everything": True}).raise_for_status().json()
    expected = sorted(asked, key=lambda one: (one["topic"], one["partition"]))
    assert len(expected) == 3

    def is_found() -> bool:
        found = plan("--all", "--json")
        return found.exit_code == 0 and json.loads(found.stdout) == expected

    wait_until(is_found, "the snapshots have it")
    broker.stop()
    told = plan("--topic", "t")
    assert told.exit_code == 0, told.output
    assert "2 segments of" in told.output
    assert "as if no topic had settings of its own" in told.output
    missing = plan("--topic", "nope")
    assert (missing.exit_code, "there is no topic nope in the snapshots" in missing.output) == (1, True)


@pytest.mark.parametrize("option", ["--json", "--here"])
def test_nothing_is_made_without_a_broker(option: str) -> None:
    done = CliRunner().invoke(main, ["compact", "--from-snapshot", "--all", option])
    assert done.exit_code == 2
    assert "segments are made" in done.output
