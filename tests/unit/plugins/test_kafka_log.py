"""What `coordinator_log=kafka` decides without a Kafka: names, safe topics, the tail in memory, remembered ids."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from diskless_core.coordinator import entries
from diskless_core.plugin import kafka_client
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBatch
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import SHARD_KINDS
from diskless_kafka import log_producer
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.log_producer import ProducerPool
from diskless_kafka.log_reader import ReadMessage
from diskless_kafka.log_shard import as_entries
from diskless_kafka.log_tail import ENTRY_BYTES, Tail
from diskless_kafka.log_topics import FoundTopic, objections, topic_name
from diskless_kafka.topic_ids import TopicIds

SAFE = KafkaLogSettings.model_validate({"bootstrap.servers": "kafka:9092"})
UNSAFE = KafkaLogSettings.model_validate(
    {"bootstrap.servers": "kafka:9092", "allow.unsafe": True, "topic.replication.factor": 1}
)
TOPIC_ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)


def found(replication_factor: int = 3, **configs: str) -> FoundTopic:
    """A topic as the log creates it, but for these."""
    return FoundTopic(
        name="__diskless_metadata",
        topic_id=TOPIC_ID,
        partitions=1,
        replication_factor=replication_factor,
        configs={**SAFE.topic_configs(), **{name.replace("_", "."): value for name, value in configs.items()}},
    )


# --- names ---------------------------------------------------------------------------------------------------------


def test_the_metadata_topic_keeps_its_name_and_none_is_one_of_kafkas_own() -> None:
    names = {topic_name(kind.shard(0), SAFE.topic_prefix) for kind in SHARD_KINDS}
    assert "__diskless_metadata" in names
    assert len(names) == len(SHARD_KINDS)
    assert not names & {"__consumer_offsets", "__cluster_metadata", "__transaction_state", "__share_group_state"}


def test_clusters_with_prefixes_of_their_own_share_no_topic() -> None:
    shard = ShardId("__diskless_metadata", 3)
    assert topic_name(shard, "orders-") == "orders-metadata"
    assert topic_name(shard, "payments-") != topic_name(shard, "orders-")


@pytest.mark.parametrize("prefix", ["", "a/b", "ü"])
def test_a_prefix_that_kafka_would_not_take_is_refused(prefix: str) -> None:
    with pytest.raises(ValidationError, match=r"topic\.prefix"):
        KafkaLogSettings.model_validate({"bootstrap.servers": "kafka:9092", "topic.prefix": prefix})


# --- safe topics -----------------------------------------------------------------------------------------------------


def test_a_replication_factor_below_3_needs_to_be_called_unsafe() -> None:
    with pytest.raises(ValidationError, match=r"allow\.unsafe=true"):
        KafkaLogSettings.model_validate({"bootstrap.servers": "kafka:9092", "topic.replication.factor": 2})
    assert UNSAFE.topic_configs()["min.insync.replicas"] == "1"
    assert SAFE.topic_configs()["min.insync.replicas"] == "2"


def test_what_the_log_creates_it_finds_nothing_wrong_with() -> None:
    assert objections(found(), SAFE) == []


@pytest.mark.parametrize(
    ("topic", "setting", "wanted"),
    [
        (found(replication_factor=2), "replication factor=2", "3 or more"),
        (found(min_insync_replicas="1"), "min.insync.replicas=1", "2 or more"),
        (found(unclean_leader_election_enable="true"), "unclean.leader.election.enable=true", "false"),
        (found(retention_ms="604800000"), "retention.ms=604800000", "-1"),
        (found(retention_bytes="1000"), "retention.bytes=1000", "-1"),
        (found(cleanup_policy="compact"), "cleanup.policy=compact", "delete"),
        (found(max_message_bytes="1048588"), "max.message.bytes=1048588", "16777216 or more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_objection_names_topic_setting_what_is_and_what_must_be(
    topic: FoundTopic, setting: str, wanted: str
) -> None:
    (told,) = objections(topic, SAFE)
    assert told.startswith(f"topic __diskless_metadata has {setting} and must have {wanted}")


def test_all_objections_are_told_at_once() -> None:
    assert len(objections(found(2, retention_ms="1", cleanup_policy="compact"), SAFE)) == 3


def test_unsafe_lifts_the_number_of_replicas_and_nothing_else() -> None:
    assert objections(found(1, min_insync_replicas="1"), UNSAFE) == []
    assert len(objections(found(1, unclean_leader_election_enable="true"), UNSAFE)) == 1
    assert len(objections(found(2, min_insync_replicas="1"), UNSAFE)) == 1, "two replicas can both be demanded"


# --- ids -------------------------------------------------------------------------------------------------------------


def remembering(folder: Path) -> TopicIds:
    ids = TopicIds(folder)
    ids.load()
    return ids


def test_a_topic_that_was_made_anew_is_refused_after_a_restart_too(tmp_path: Path) -> None:
    ids = remembering(tmp_path / "log")
    ids.require("t", TOPIC_ID)
    ids.remember("t", TOPIC_ID)
    for later in (ids, remembering(tmp_path / "log")):
        later.require("t", TOPIC_ID)
        later.require("another", OTHER_ID)
        with pytest.raises(CoordinatorLogError, match="deleted and made anew"):
            later.require("t", OTHER_ID)
        with pytest.raises(CoordinatorLogError, match="is gone"):
            later.require_unknown("t")
        later.require_unknown("another")


def test_a_file_of_ids_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "topic-ids.json").write_text("{")
    with pytest.raises(CoordinatorLogError, match=r"topic-ids\.json"):
        remembering(tmp_path)


# --- the tail --------------------------------------------------------------------------------------------------------


def entry(offset: int, size: int = 10) -> LogBatch:
    return LogBatch(offset, offset + 1, bytes(size))


async def test_a_tail_gives_what_it_has_from_any_offset_on() -> None:
    tail = Tail(5, max_bytes=10_000)
    tail.add([entry(5), entry(6), entry(9)])
    assert (tail.start, tail.end) == (5, 10)
    assert [one.offset for one in await tail.entries_from(6)] == [6, 9]
    assert [one.offset for one in await tail.entries_from(7)] == [9]


@pytest.mark.parametrize("size", [0, 10, 1_000], ids=["what others wrote", "small", "larger"])
async def test_a_tail_holds_twice_its_bytes_at_most_and_gives_up_the_oldest(size: int) -> None:
    max_bytes = 10_000
    tail = Tail(0, max_bytes=max_bytes)
    held = 0
    for offset in range(200):
        tail.add([entry(offset, size)])
        kept = await tail.entries_from(tail.start)
        held = max(held, sum(ENTRY_BYTES + len(one.data) for one in kept))
        assert kept[-1].offset == offset
        assert tail.start == kept[0].offset
    assert max_bytes <= held <= 2 * max_bytes


async def test_a_reader_that_has_all_waits_for_more_and_hears_of_a_failure() -> None:
    tail = Tail(0, max_bytes=10_000)
    tail.add([entry(0)])
    waiting = asyncio.create_task(tail.entries_from(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    tail.add([entry(1)])
    assert [one.offset for one in await waiting] == [1]
    tail.fail(CoordinatorLogError("gone"))
    assert [one.offset for one in await tail.entries_from(0)] == [0, 1], "what is known can be read on"
    with pytest.raises(CoordinatorLogError, match="gone"):
        await tail.entries_from(2)


# --- what is read ----------------------------------------------------------------------------------------------------


def read(offset: int, value: Any = b"batch") -> ReadMessage:
    return ReadMessage(offset, offset + 1, bytes(24), value)


def end(offset: int) -> ReadMessage:
    return ReadMessage(offset, offset, None, None)


def test_a_message_is_an_entry_at_its_own_offset() -> None:
    assert as_entries([read(3), read(4), end(5)], 3) == [LogBatch(3, 4, b"batch"), LogBatch(4, 5, b"batch")]


def test_what_was_read_before_is_not_read_again() -> None:
    assert as_entries([read(3), read(4)], 4) == [LogBatch(4, 5, b"batch")]


def test_control_batches_are_passed_over_and_one_at_the_end_still_moves_readers_to_the_end() -> None:
    assert as_entries([read(3), read(5), end(7)], 3) == [
        LogBatch(3, 4, b"batch"),
        LogBatch(5, 6, b"batch"),
        LogBatch(6, 7, b""),
    ]


@pytest.mark.parametrize("key", [None, b"", b"theirs", bytes(25)])
def test_what_somebody_else_wrote_is_no_entry_whatever_it_looks_like(key: bytes | None) -> None:
    like_a_damaged_entry = bytes(16) + b"\2" + bytes(60)
    [found] = as_entries([ReadMessage(3, 4, key, like_a_damaged_entry)], 3)
    assert found == LogBatch(3, 4, b"")
    assert entries.decode(found.data) == entries.FOREIGN
    with pytest.raises(entries.DamagedEntryError):
        entries.decode(like_a_damaged_entry)


# --- producers -------------------------------------------------------------------------------------------------------


class FakeProducer:
    """Counts how often it is served."""

    def __init__(self) -> None:
        self.served = threading.Semaphore(0)

    def poll(self, _: float) -> None:
        self.served.release()


@pytest.mark.parametrize(
    "failure",
    [KafkaClientError("no thread is left", code=-1, retriable=True), FileNotFoundError("no such file: ca.pem")],
    ids=["the client", "a file of the settings"],
)
def test_producers_are_served_while_a_spare_one_cannot_be_opened_and_it_is_opened_later(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    opened, failing, failures = list[FakeProducer](), threading.Event(), threading.Semaphore(0)

    def open_producer(_: object) -> FakeProducer:
        if failing.is_set():
            failures.release()
            raise failure
        opened.append(FakeProducer())
        return opened[-1]

    monkeypatch.setattr(kafka_client, "open_producer", open_producer)
    monkeypatch.setattr(kafka_client, "close_producer", lambda *_: None)
    monkeypatch.setattr(log_producer, "_POLL_S", 0.0005)
    monkeypatch.setattr(log_producer, "_SPARE_AGAIN_ROUNDS", 5)
    pool = ProducerPool({})
    pool.start()
    try:
        failing.set()
        taken = pool.take(lambda *_: None).client
        for _ in range(3):
            assert failures.acquire(timeout=60)
        for _ in range(100):
            assert taken.served.acquire(timeout=60), "its errors would go unheard"
        failing.clear()
        deadline = time.monotonic() + 60
        while len(opened) < 2:
            assert time.monotonic() < deadline
            assert taken.served.acquire(timeout=60)
    finally:
        pool.stop()
