"""A broker whose cluster is moved from one coordinator log to another, and back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.requests import append, commit_offset, committed_offset, create_topic, fetch

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}


def _migrate(broker: BrokerProcess, source: str, target: str, *options: str) -> subprocess.CompletedProcess[str]:
    return _run(broker, "migrate-log", f"--from={source}", f"--to={target}", *options, is_tried=True)


def _run(
    broker: BrokerProcess, *command: str, settings: Mapping[str, str] = LISTENERS, is_tried: bool = False
) -> subprocess.CompletedProcess[str]:
    options = {**settings, "log.dirs": str(broker.folder / "data")}
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("diskless")),
            *command,
            *(part for name, value in options.items() for part in ("-o", f"{name}={value}")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert is_tried or done.returncode == 0, done.stderr
    return done


def test_a_cluster_moves_to_the_bucket_and_back_and_the_log_that_it_left_refuses(new_broker: Any, topic: str) -> None:
    broker, values = new_broker(LISTENERS | {"coordinator_log": "local"}), list[bytes]()

    def produced_and_read(count: int) -> None:
        with broker.connect() as wire:
            for _ in range(count):
                values.append(b"%d" % len(values))
                append(wire, topic, batch_of(values[-1]))
            assert read_values(fetch(wire, topic, 0).records) == values

    with broker.connect() as wire:
        create_topic(wire, topic)
    produced_and_read(30)
    refused = _migrate(broker, "local", "bucket")
    assert (refused.returncode, "in use" in refused.stderr) == (1, True), "the broker runs"
    broker.stop()

    moved = _migrate(broker, "local", "bucket")
    assert moved.returncode == 0, moved.stderr
    assert "Set coordinator_log=bucket" in moved.stdout
    local = {"coordinator_log": "local", "listeners": "PLAINTEXT://127.0.0.1:0", "admin.listener": ""}
    started = _run(broker, "serve", settings=local, is_tried=True)
    assert (started.returncode, "moved to bucket" in started.stderr) == (1, True), started.stderr
    broker.start({"coordinator_log": "bucket"})
    produced_and_read(30)
    broker.stop()

    refused = _migrate(broker, "bucket", "local")
    assert (refused.returncode, "was left by an earlier migration" in refused.stderr) == (1, True), refused.stderr
    shutil.rmtree(broker.folder / "data/coordinator_log/local")
    back = _migrate(broker, "bucket", "local")
    assert back.returncode == 0, back.stderr
    broker.start({"coordinator_log": "local"})
    produced_and_read(1)
    broker.stop()
    _run(broker, "coordinator", "rebuild")
    broker.start()
    produced_and_read(1)


def test_groups_are_dealt_out_on_the_way(new_broker: Any, topic: str) -> None:
    broker = new_broker(LISTENERS | {"coordinator_log": "local"})
    groups = {f"{topic}-{number}": number for number in range(8)}
    with broker.connect() as wire:
        create_topic(wire, topic)
        assert {commit_offset(wire, group, topic, offset) for group, offset in groups.items()} == {0}
    broker.stop()

    moved = _migrate(broker, "local", "bucket", "--offsets-topic-num-partitions=3")
    assert moved.returncode == 0, moved.stderr
    assert "__consumer_offsets-2 was moved" in moved.stdout
    broker.start({"coordinator_log": "bucket", "offsets.topic.num.partitions": "3"})
    with broker.connect() as wire:
        assert {group: committed_offset(wire, group, topic)[1] for group in groups} == groups
    broker.stop()

    shutil.rmtree(broker.folder / "data/coordinator_log/local")
    back = _migrate(broker, "bucket", "local", "--offsets-topic-num-partitions=1")
    assert back.returncode == 0, back.stderr
    broker.start({"coordinator_log": "local", "offsets.topic.num.partitions": ""})
    with broker.connect() as wire:
        assert {group: committed_offset(wire, group, topic)[1] for group in groups} == groups
