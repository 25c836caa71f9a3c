"""A plugin that was written against the first plugin API loads without a warning, and a broker runs on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from diskless_core.plugin_host.nouns import NOUNS
from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.requests import append, create_topic, fetch

SOURCES = Path(__file__).parents[1] / "plugin_of_version_1_0"
DISKLESS = Path(sys.executable).with_name("diskless")
VALUES = [b"value %d" % number for number in range(10)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with which the plugin is found, as one that is installed."""
    described = tmp_path / "site" / "diskless_first-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: diskless-first\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text((SOURCES / "entry_points.txt").read_text())
    paths = [str(described.parent), str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [DISKLESS, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_it_loads_without_a_warning(environment: dict[str, str]) -> None:
    environment["PYTHONWARNINGS"] = "default::DeprecationWarning:diskless_core.plugin_host"
    listed = run(environment, "plugins", "list", "--json")

    answer = json.loads(listed.stdout)
    ours = [plugin for plugin in answer["plugins"] if plugin["distribution"] == "diskless-first"]
    assert {plugin["noun"] for plugin in ours} == set(NOUNS)
    assert {plugin["api_version"] for plugin in ours} == {"1.0"}
    assert not [plugin for plugin in answer["quarantined"] if plugin["distribution"] == "diskless-first"]
    assert "deprecated" not in listed.stderr
    assert run(environment, "first_command_group", "shard", "diskless-0").stdout == "__diskless_metadata-0\n"


def test_a_broker_runs_on_it(environment: dict[str, str], tmp_path: Path, topic: str) -> None:
    settings = {
        **{noun: f"first_{noun}" for noun in NOUNS},
        "admin.listener": "http://127.0.0.1:0",
        "diskless.fetch.cache.max.bytes": "0",
        "remote.log.storage.system.enable": "true",
    }
    broker = BrokerProcess(tmp_path / "broker", settings)
    broker.environment = environment
    try:
        broker.start()
        with broker.connect() as wire:
            create_topic(wire, topic)
            append(wire, topic, *(batch_of(value) for value in VALUES))
        run(environment, "compact", "--topic", topic, "--everything", "--url", broker.admin)
        assert httpx.get(f"{broker.admin}/remote-log", timeout=300).raise_for_status().json()
        broker.kill()
        broker.start()
        with broker.connect() as wire:
            assert read_values(fetch(wire, topic, 0).records) == VALUES
        broker.stop()
    finally:
        broker.end()
