"""A broker whose cluster is moved from one coordinator log to another, and back."""

from __future__ import annotations

import shutil
from typing import Any

from tests.support.migration import LISTENERS, MovingBroker
from tests.support.requests import commit_offset, committed_offset


def test_a_cluster_moves_to_the_bucket_and_back_and_the_log_that_it_left_refuses(new_broker: Any, topic: str) -> None:
    broker = new_broker(LISTENERS | {"coordinator_log": "local"})
    moving = MovingBroker(broker, topic, LISTENERS)
    moving.produce_and_read(30)
    refused = moving.migrate("local", "bucket")
    assert (refused.returncode, "in use" in refused.stderr) == (1, True), "the broker runs"
    broker.stop()

    moved = moving.migrate("local", "bucket")
    assert moved.returncode == 0, moved.stderr
    assert "Set coordinator_log=bucket" in moved.stdout
    local = {"coordinator_log": "local", "listeners": "PLAINTEXT://127.0.0.1:0", "admin.listener": ""}
    started = moving.run("serve", settings=local)
    assert (started.returncode, "moved to bucket" in started.stderr) == (1, True), started.stderr
    broker.start({"coordinator_log": "bucket"})
    moving.produce_and_read(30)
    broker.stop()

    refused = moving.migrate("bucket", "local")
    assert (refused.returncode, "was left by an earlier migration" in refused.stderr) == (1, True), refused.stderr
    shutil.rmtree(broker.folder / "data/coordinator_log/local")
    back = moving.migrate("bucket", "local")
    assert back.returncode == 0, back.stderr
    broker.start({"coordinator_log": "local"})
    moving.produce_and_read(1)
    broker.stop()
    rebuilt = moving.run("coordinator", "rebuild")
    assert rebuilt.returncode == 0, rebuilt.stderr
    broker.start()
    moving.produce_and_read(1)


def test_groups_are_dealt_out_on_the_way(new_broker: Any, topic: str) -> None:
    broker = new_broker(LISTENERS | {"coordinator_log": "local"})
    moving = MovingBroker(broker, topic, LISTENERS)
    groups = {f"{topic}-{number}": number for number in range(8)}
    with broker.connect() as wire:
        assert {commit_offset(wire, group, topic, offset) for group, offset in groups.items()} == {0}
    broker.stop()

    moved = moving.migrate("local", "bucket", "--offsets-topic-num-partitions=3")
    assert moved.returncode == 0, moved.stderr
    assert "__consumer_offsets-2 was moved" in moved.stdout
    broker.start({"coordinator_log": "bucket", "offsets.topic.num.partitions": "3"})
    with broker.connect() as wire:
        assert {group: committed_offset(wire, group, topic)[1] for group in groups} == groups
    broker.stop()

    shutil.rmtree(broker.folder / "data/coordinator_log/local")
    back = moving.migrate("bucket", "local")
    assert back.returncode == 0, back.stderr
    rebuilt = moving.run("coordinator", "rebuild")
    assert "__consumer_offsets-2" in rebuilt.stdout
    broker.start({"coordinator_log": "local", "offsets.topic.num.partitions": ""})
    with broker.connect() as wire:
        assert {group: committed_offset(wire, group, topic)[1] for group in groups} == groups
