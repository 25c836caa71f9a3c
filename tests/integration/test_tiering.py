"""Records go from WAL objects to segments while clients write, read, and the broker is killed; nobody notices."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.crash import (
    CLIENT,
    PARTITIONS,
    CrashPoint,
    SteadyProducer,
    assert_nothing_is_lost,
    wait_for_acknowledgements,
)
from tests.support.requests import list_offset
from tests.support.waiting import wait_until

TOPIC = "tiered"
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -4, -5
SETTINGS = {
    "admin.listener": "http://127.0.0.1:0",
    "diskless.append.commit.interval.ms": "20",
    "diskless.file.delete.delay.ms": "0",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "remote.log.manager.task.interval.ms": "100",
    "remote.log.storage.system.enable": "true",
}
STORAGE = "diskless_fsspec.remote_storage:FsspecRemoteStorage"
SHARD = "diskless_core.diskless.shard:DisklessShard"
CRASH_POINTS = {
    "before a segment is copied": CrashPoint(f"{STORAGE}.copy", 3, is_async=True),
    "after a segment was copied, before that is noted": CrashPoint(f"{STORAGE}.copy", 3, after=True, is_async=True),
    "before the coordinator takes a segment": CrashPoint(f"{SHARD}.tier", 3, is_async=True),
    "after the coordinator took a segment": CrashPoint(f"{SHARD}.tier", 3, after=True, is_async=True),
}
TIMEOUT_S = 300.0


@pytest.fixture
def tiered(new_broker: BrokerFactory) -> BrokerProcess:
    broker = new_broker(SETTINGS)
    create(broker, TOPIC, PARTITIONS)
    return broker


@pytest.fixture
def producers(tiered: BrokerProcess) -> Iterator[list[SteadyProducer]]:
    """An idempotent producer and one that may repeat itself, at work."""
    made = [
        SteadyProducer(tiered.bootstrap, TOPIC, name, idempotent=idempotent).start()
        for name, idempotent in (("first", True), ("careless", False))
    ]
    yield made
    for producer in made:
        producer._stopping.set()


def create(broker: BrokerProcess, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **CLIENT})
    admin.create_topics([NewTopic(topic, partitions, config=config or {})])[topic].result(TIMEOUT_S)


def compact(broker: BrokerProcess, *options: str) -> Any:
    done = subprocess.run(
        [Path(sys.executable).with_name("diskless"), "compact", *options, "--json", "--url", broker.admin],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def segments(broker: BrokerProcess) -> list[Any]:
    return list(httpx.get(f"{broker.admin}/remote-log", timeout=TIMEOUT_S).raise_for_status().json())


def files(broker: BrokerProcess) -> set[str]:
    """The ids of the segments whose logs lie in remote storage."""
    folder = broker.folder / "data" / "remote-storage" / "kafka-tiered-storage"
    return {path.stem.split("-", 1)[1] for path in folder.rglob("*.log")}


def objects(broker: BrokerProcess) -> list[Path]:
    folder = broker.folder / "data" / "wal-objects" / "wal"
    return [path for path in folder.rglob("*") if path.is_file() and ".incoming" not in path.parts]


def finish(broker: BrokerProcess, producers: list[SteadyProducer]) -> None:
    for producer in producers:
        producer.stop()
    assert_nothing_is_lost(broker.bootstrap, TOPIC, producers)


def test_what_was_written_is_read_while_it_goes_into_segments(
    tiered: BrokerProcess, producers: list[SteadyProducer]
) -> None:
    for _ in range(3):
        wait_for_acknowledgements(producers, 100)
        report = compact(tiered, "--topic", TOPIC, "--everything")
        assert report["state"] == "finished"
    wait_for_acknowledgements(producers, 100)
    finish(tiered, producers)
    known = segments(tiered)
    assert {one["partition"] for one in known} == set(range(PARTITIONS))
    assert {one["state"] for one in known} == {"COPY_SEGMENT_FINISHED"}
    assert {one["segment_id"] for one in known} == files(tiered)
    with tiered.connect() as wire:
        for partition in range(PARTITIONS):
            own = [one for one in known if one["partition"] == partition]
            local = list_offset(wire, TOPIC, EARLIEST_LOCAL, partition=partition).offset
            assert local == own[-1]["end_offset"] + 1
            assert list_offset(wire, TOPIC, LATEST_TIERED, partition=partition).offset == local - 1
            assert list_offset(wire, TOPIC, EARLIEST, partition=partition).offset == 0
    compact(tiered, "--all", "--everything")
    wait_until(lambda: not objects(tiered), "the WAL objects are gone")
    assert_nothing_is_lost(tiered.bootstrap, TOPIC, producers)


@pytest.mark.parametrize("moment", CRASH_POINTS)
def test_a_broker_that_dies_in_a_compaction_loses_nothing_and_the_next_one_clears_up(
    moment: str, tiered: BrokerProcess, producers: list[SteadyProducer]
) -> None:
    wait_for_acknowledgements(producers, 50)
    tiered.stop()
    healthy = tiered._command
    tiered._command = CRASH_POINTS[moment].write_command(tiered.folder / "diskless-that-dies")
    tiered.start()
    wait_for_acknowledgements(producers, 50)
    with suppress(httpx.NetworkError, httpx.RemoteProtocolError):  # it may die before it has answered
        body = {"topics": [TOPIC], "everything": True}
        httpx.post(f"{tiered.admin}/compaction", json=body, timeout=TIMEOUT_S)
    assert tiered._running().wait(TIMEOUT_S) == -signal.SIGKILL
    tiered._command = healthy
    tiered.start()
    wait_for_acknowledgements(producers, 50)
    compact(tiered, "--topic", TOPIC, "--everything")
    finish(tiered, producers)
    known = segments(tiered)
    wait_until(lambda: {one["segment_id"] for one in segments(tiered)} == files(tiered), "files are what is known")
    assert {one["state"] for one in known} == {"COPY_SEGMENT_FINISHED"}
    for partition in range(PARTITIONS):
        own = [one for one in known if one["partition"] == partition]
        assert [one["start_offset"] for one in own] == [0, *(one["end_offset"] + 1 for one in own[:-1])]


def write(broker: BrokerProcess, topic: str, count: int, size: int = 1000) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, **CLIENT})
    for _ in range(count):
        producer.produce(topic, bytes(size), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_segments_of_a_deleted_topic_are_removed_and_those_of_others_stay(tiered: BrokerProcess) -> None:
    create(tiered, "gone", 2)
    for topic in (TOPIC, "gone"):
        write(tiered, topic, 20)
    compact(tiered, "--all", "--everything")
    assert len(files(tiered)) == 2
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap, **CLIENT})
    admin.delete_topics(["gone"])["gone"].result(TIMEOUT_S)
    wait_until(lambda: len(files(tiered)) == 1, "the segments of the deleted topic are gone")
    assert [one["topic"] for one in segments(tiered)] == [TOPIC]


def test_retention_removes_whole_segments(tiered: BrokerProcess) -> None:
    create(tiered, "short", 1, {"retention.bytes": "25000"})
    for _ in range(4):
        write(tiered, "short", 10)
        compact(tiered, "--topic", "short", "--everything")
    wait_until(lambda: len(files(tiered)) == 3, "the oldest segment is gone")
    with tiered.connect() as wire:
        start = list_offset(wire, "short", EARLIEST).offset
    assert start == 10
    assert [one["start_offset"] for one in segments(tiered)] == [10, 20, 30]


def test_topics_with_remote_storage_are_compacted_by_and_by(tiered: BrokerProcess) -> None:
    create(tiered, "steady", 1, {"remote.storage.enable": "true", "local.retention.bytes": "5000"})
    write(tiered, "steady", 20)
    write(tiered, TOPIC, 20)
    wait_until(lambda: bool(segments(tiered)), "something is compacted")
    assert {one["topic"] for one in segments(tiered)} == {"steady"}


def test_records_that_were_deleted_are_not_read_from_the_segment_that_has_them(tiered: BrokerProcess) -> None:
    write(tiered, TOPIC, 30)
    compact(tiered, "--topic", TOPIC, "--everything")
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap, **CLIENT})
    place = TopicPartition(TOPIC, 0, 11)
    assert admin.delete_records([place])[place].result(10).low_watermark == 11
    with tiered.connect() as wire:
        assert list_offset(wire, TOPIC, EARLIEST).offset == 11
    assert len(files(tiered)) == 1
    admin.delete_records([TopicPartition(TOPIC, 0, 30)])
    wait_until(lambda: not files(tiered), "the segment is gone")
