"""A broker under load is killed at random and at chosen moments; whatever it acknowledged is there afterwards, once."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from diskless_core.log.segment import base_offset_of, intact_batches
from diskless_core.protocol.record_batch import patch_base_offset
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.crash import (
    CLIENT,
    PARTITIONS,
    CrashPoint,
    SteadyProducer,
    assert_nothing_is_lost,
    wait_for_acknowledgements,
)

TOPIC = "survivor"
OTHER_TOPIC = "settings"
OTHER_TOPIC_MAX_BYTES = 500
GROUP = "readers"
ACKNOWLEDGED_BETWEEN_KILLS = 150

LOG_WRITER = "diskless_local_log.writer:LogWriter"
CRASH_POINTS = {
    "before an object is stored": CrashPoint("diskless_fsspec.local_store:LocalObjectStore.put", 20, is_async=True),
    "after an object was stored, before its commit": CrashPoint(
        "diskless_fsspec.local_store:LocalObjectStore.put", 20, after=True, is_async=True
    ),
    "after a commit, before its answer": CrashPoint(
        "diskless_core.produce.committer:Committer.commit", 20, after=True, is_async=True
    ),
    "before log entries are synced": CrashPoint(f"{LOG_WRITER}._sync_all", 40),
    "after log entries were synced, before anybody was told": CrashPoint(f"{LOG_WRITER}._sync_all", 40, after=True),
    "before the store takes a transaction": CrashPoint("diskless_sqlite.store:SqliteShardStore.write", 5),
    "after the store took a transaction": CrashPoint("diskless_sqlite.store:SqliteShardStore.write", 5, after=True),
}


@pytest.fixture
def crashing(new_broker: BrokerFactory) -> BrokerProcess:
    """A broker with a topic that has settings of its own, and one for the load."""
    broker = new_broker({"diskless.append.commit.interval.ms": "20"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **CLIENT})
    other = NewTopic(OTHER_TOPIC, 1, config={"max.message.bytes": str(OTHER_TOPIC_MAX_BYTES)})
    created = admin.create_topics([NewTopic(TOPIC, PARTITIONS), other])
    for done in created.values():
        done.result(10)
    return broker


@pytest.fixture
def producers(crashing: BrokerProcess) -> Iterator[list[SteadyProducer]]:
    """Two idempotent producers and one that may repeat itself, at work."""
    made = [
        SteadyProducer(crashing.bootstrap, TOPIC, name, idempotent=idempotent).start()
        for name, idempotent in (("first", True), ("second", True), ("careless", False))
    ]
    yield made
    for producer in made:
        producer._stopping.set()


def finish(broker: BrokerProcess, producers: list[SteadyProducer]) -> None:
    for producer in producers:
        producer.stop()
    assert_nothing_is_lost(broker.bootstrap, TOPIC, producers)


def commit_offset(broker: BrokerProcess, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, **CLIENT})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def committed_offset(broker: BrokerProcess) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, **CLIENT})
    [found] = consumer.committed([TopicPartition(TOPIC, 0)], timeout=300)
    consumer.close()
    offset: int = found.offset
    return offset


def is_refused_as_too_large(broker: BrokerProcess, topic: str, size_bytes: int) -> bool:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, **CLIENT})
    producer.produce(topic, bytes(size_bytes), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(300) == 0
    [error] = errors
    return error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def log_segments(broker: BrokerProcess) -> list[Path]:
    """The last segment of each shard's log."""
    folders = (broker.folder / "data" / "coordinator_log" / "local").iterdir()
    return [max(folder.glob("*.log")) for folder in folders if folder.is_dir()]


def tear_the_last_write(broker: BrokerProcess) -> None:
    """As a power failure does: of what was being written, not acknowledged, there is a part."""
    for segment in log_segments(broker):
        content = segment.read_bytes()
        position, last = list(intact_batches(content, 0, base_offset_of(segment.name) or 0, gapless=True))[-1]
        end = position + last.size
        interrupted = bytearray(content[position:end])
        patch_base_offset(interrupted, 0, last.last_offset + 1)
        segment.write_bytes(content[:end] + interrupted[: last.size // 2])


def delete_the_store(broker: BrokerProcess) -> None:
    databases = list((broker.folder / "data" / "coordinator_store" / "sqlite").iterdir())
    assert databases
    for path in databases:
        path.unlink()


def leave_half_an_object(broker: BrokerProcess) -> None:
    incoming = broker.folder / "data" / "wal-objects" / ".incoming"
    for folder in incoming.iterdir():
        (folder / "half-of-an-object").write_bytes(b"DSKLSWAL half")


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed_at_random(
    crashing: BrokerProcess, producers: list[SteadyProducer]
) -> None:
    source = random.Random(4)
    damages = [tear_the_last_write, delete_the_store, leave_half_an_object]
    for number in range(2 * len(damages)):
        wait_for_acknowledgements(producers, source.randint(0, ACKNOWLEDGED_BETWEEN_KILLS))
        commit_offset(crashing, number)
        crashing.kill()
        damages[number % len(damages)](crashing)
        crashing.start()
        assert committed_offset(crashing) == number
    finish(crashing, producers)
    assert is_refused_as_too_large(crashing, OTHER_TOPIC, OTHER_TOPIC_MAX_BYTES + 1)
    crashing.stop()
    delete_the_store(crashing)
    crashing.start()
    assert_nothing_is_lost(crashing.bootstrap, TOPIC, producers)


def test_nothing_acknowledged_is_lost_wherever_the_broker_is_killed(
    crashing: BrokerProcess, producers: list[SteadyProducer], tmp_path: Path
) -> None:
    healthy = crashing._command
    crashing.kill()
    for number, (moment, point) in enumerate(CRASH_POINTS.items()):
        crashing._command = point.write_command(tmp_path / f"diskless-{number}")
        crashing.start()
        process = crashing._running()
        assert process.wait(30) == -signal.SIGKILL, f"{moment}: the broker was not killed"
    crashing._command = healthy
    crashing.start()
    finish(crashing, producers)
