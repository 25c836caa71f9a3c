"""What is promised of DeleteRecords, retention and deleted topics: what goes, what stays, and that space comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import DeleteRecordsRequest

from diskless_core.clock import SystemClock
from diskless_core.protocol.errors import ErrorCode
from diskless_fsspec.local_store import INCOMING
from tests.support.admin_requests import SET, TOPIC, alter
from tests.support.batches import NOW_MS, batch_of, read_records, timed_batch
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.guarantees import guarantee
from tests.support.requests import (
    PRODUCE_VERSION,
    append,
    create_topic,
    delete_topic,
    fetch,
    list_offset,
    produce_request,
)
from tests.support.waiting import wait_until
from tests.support.wire import WireClient

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
SOON = {
    "diskless.fetch.cache.max.bytes": "0",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "50",
    "diskless.file.delete.delay.ms": "200",
}
_Topic = DeleteRecordsRequest.DeleteRecordsTopic


@pytest.fixture(scope="module")
def retaining_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that removes everything as soon as it may; it has to stop cleanly in the end."""
    broker = BrokerProcess(tmp_path_factory.mktemp("retaining-broker"), SOON)
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.end()


@pytest.fixture
def objects(retaining_broker: BrokerProcess) -> Callable[[], int]:
    """How many objects there are that the test has written."""
    before = objects_of(retaining_broker)
    return lambda: len(objects_of(retaining_broker) - before)


def delete_records(
    wire: WireClient, topic: str, offset: int, partition: int = 0, *, version: int = 2
) -> tuple[int, int]:
    """Error code and log start offset."""
    asked = _Topic(name=topic, partitions=[_Topic.DeleteRecordsPartition(partition_index=partition, offset=offset)])
    answer = wire.call(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), version)
    [result] = answer.topics[0].partitions
    assert result.partition_index == partition
    return result.error_code, result.low_watermark


def objects_of(broker: BrokerProcess) -> set[Path]:
    root = broker.folder / "data" / "wal-objects" / "wal"
    return {path for path in root.rglob("*") if path.is_file() and INCOMING not in path.parts}


def values_from(wire: WireClient, topic: str, offset: int, partition: int = 0) -> list[bytes]:
    answer = fetch(wire, topic, offset, partition)
    assert answer.error_code == 0
    return [record.value for record in read_records(answer.records) if record.offset >= offset]


def first_kept(values: list[bytes], retention_bytes: int) -> int:
    """Which of these values, each in a batch of its own, is the oldest that is left."""
    sizes = [len(batch_of(value)) for value in values]
    first = 0
    while sum(sizes[first + 1 :]) >= retention_bytes:
        first += 1
    return first


# --- DeleteRecords ---------------------------------------------------------------------------------------------------


@guarantee("Deletion and retention", "DeleteRecords inside a batch moves the log start there and keeps the batch.")
@pytest.mark.parametrize("version", range(3))
def test_records_before_an_offset_are_deleted(wire: WireClient, topic: str, version: int) -> None:
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"0", b"1", b"2"), batch_of(b"3"))

    assert delete_records(wire, topic, 1, version=version) == (0, 1)

    assert list_offset(wire, topic, EARLIEST).offset == 1
    assert list_offset(wire, topic, LATEST).offset == 4
    assert fetch(wire, topic, 0).error_code == OUT_OF_RANGE
    answer = fetch(wire, topic, 1)
    assert (answer.log_start_offset, answer.high_watermark) == (1, 4)
    assert [record.offset for record in read_records(answer.records)] == [0, 1, 2, 3], "the batch is kept whole"


@guarantee("Deletion and retention", "DeleteRecords above the high watermark or below -1 is OFFSET_OUT_OF_RANGE.")
@guarantee("Deletion and retention", "DeleteRecords at or below the log start succeeds and tells the present one.")
def test_outside_the_partition_nothing_is_deleted(wire: WireClient, topic: str) -> None:
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"0", b"1"))
    delete_records(wire, topic, 1)

    assert delete_records(wire, topic, 0) == (0, 1)
    assert delete_records(wire, topic, 1) == (0, 1)
    assert delete_records(wire, topic, 3) == (OUT_OF_RANGE, -1)
    assert delete_records(wire, topic, -2) == (OUT_OF_RANGE, -1)
    assert delete_records(wire, topic, 0, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(wire, f"{topic}-absent", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert values_from(wire, topic, 1) == [b"1"]


@guarantee(
    "Deletion and retention",
    "Each partition of a DeleteRecords request is answered by itself; -1 means its high watermark.",
)
def test_several_topics_and_partitions_are_answered_each_for_itself_in_order(wire: WireClient, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names[:2]:
        create_topic(wire, name, 2)
        for partition in (0, 1):
            append(wire, name, batch_of(b"0", b"1", b"2"), partition=partition)
    part = _Topic.DeleteRecordsPartition
    asked = [
        _Topic(name=name, partitions=[part(partition_index=1, offset=-1), part(partition_index=0, offset=number)])
        for number, name in enumerate(names)
    ]

    answer = wire.call(DeleteRecordsRequest(topics=asked, timeout_ms=10_000), 2)

    missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert [
        [(one.partition_index, one.error_code, one.low_watermark) for one in result.partitions]
        for result in answer.topics
    ] == [[(1, 0, 3), (0, 0, 0)], [(1, 0, 3), (0, 0, 1)], [(1, *missing), (0, *missing)]]


@guarantee(
    "Deletion and retention",
    "After everything was deleted the high watermark stays, and offsets go on from there.",
)
def test_after_everything_was_deleted_the_offsets_go_on(wire: WireClient, topic: str) -> None:
    create_topic(wire, topic)
    append(wire, topic, timed_batch(NOW_MS, NOW_MS + 1))

    assert delete_records(wire, topic, -1) == (0, 2)

    answer = fetch(wire, topic, 2)
    assert (answer.error_code, answer.high_watermark, answer.records or b"") == (0, 2, b"")
    for timestamp in (MAX_TIMESTAMP, 0, NOW_MS):
        listed = list_offset(wire, topic, timestamp)
        assert (listed.offset, listed.timestamp) == (-1, -1)
    assert append(wire, topic, batch_of(b"new")) == [2]
    assert values_from(wire, topic, 2) == [b"new"]


@guarantee("Reads", "No offset that is listed by timestamp lies below the log start.")
def test_no_offset_by_time_lies_below_the_log_start(wire: WireClient, topic: str) -> None:
    create_topic(wire, topic)
    append(wire, topic, timed_batch(NOW_MS, NOW_MS + 90, NOW_MS + 10), timed_batch(NOW_MS + 20, NOW_MS + 30))

    def listed(timestamp: int) -> tuple[int, int]:
        answer = list_offset(wire, topic, timestamp)
        return answer.offset, answer.timestamp - NOW_MS

    assert listed(MAX_TIMESTAMP) == (1, 90)
    delete_records(wire, topic, 1)
    assert listed(0) == (1, 90)
    delete_records(wire, topic, 2)
    assert listed(MAX_TIMESTAMP) == (4, 30)
    assert [listed(timestamp) for timestamp in (0, NOW_MS + 10, NOW_MS + 11, NOW_MS + 25)] == [
        (2, 10),
        (2, 10),
        (3, 20),
        (4, 30),
    ]
    assert list_offset(wire, topic, NOW_MS + 50).offset == -1
    delete_records(wire, topic, 3)
    assert (listed(0), listed(MAX_TIMESTAMP)) == ((3, 20), (4, 30))


@guarantee(
    "Deletion and retention",
    "What was deleted stays deleted after a kill -9, and when the coordinator's store is lost.",
)
def test_what_was_deleted_stays_deleted_after_a_kill_and_when_the_state_is_made_again(
    new_broker: BrokerFactory, topic: str
) -> None:
    broker = new_broker(SOON)
    with broker.connect() as wire:
        create_topic(wire, topic)
        append(wire, topic, batch_of(b"0"), batch_of(b"1"), batch_of(b"2"))
        delete_records(wire, topic, 2)
    wait_until(lambda: len(objects_of(broker)) == 1, "dead objects are gone")
    for is_state_lost in (False, True):
        broker.kill()
        if is_state_lost:
            shutil.rmtree(broker.folder / "data" / "coordinator_store")
        broker.start()
        with broker.connect() as wire:
            assert list_offset(wire, topic, EARLIEST).offset == 2
            assert fetch(wire, topic, 1).error_code == OUT_OF_RANGE
            assert values_from(wire, topic, 2) == [b"2"]


# --- retention -------------------------------------------------------------------------------------------------------


@guarantee(
    "Deletion and retention",
    "By time, what is too old goes, oldest first; what comes after a record from the future is kept.",
)
def test_what_is_too_old_goes_with_its_objects_and_what_is_not_stays(
    retaining_broker: BrokerProcess, objects: Callable[[], int], topic: str
) -> None:
    with retaining_broker.connect() as wire:
        create_topic(wire, topic, retention_ms="3600000")
        old, new = NOW_MS - 7_200_000, NOW_MS + 3_600_000
        append(wire, topic, timed_batch(old), timed_batch(old, old + 1), timed_batch(new), timed_batch(old))
        wait_until(lambda: objects() == 2, "expired objects are gone")
        assert list_offset(wire, topic, EARLIEST).offset == 3
        assert fetch(wire, topic, 0).error_code == OUT_OF_RANGE
        assert len(values_from(wire, topic, 3)) == 2


@guarantee("Deletion and retention", "By size, the oldest go whole as long as what remains is not below the limit.")
def test_a_partition_that_is_too_large_loses_its_oldest_batches(
    retaining_broker: BrokerProcess, objects: Callable[[], int], topic: str
) -> None:
    size = len(batch_of(b"x" * 1000))
    with retaining_broker.connect() as wire:
        create_topic(wire, topic, retention_bytes=str(3 * size), retention_ms="-1")
        append(wire, topic, *(batch_of(bytes([number]) * 1000) for number in range(10)))
        wait_until(lambda: objects() == 3, "what is over the limit is gone")
        assert list_offset(wire, topic, EARLIEST).offset == 7
        assert [value[0] for value in values_from(wire, topic, 7)] == [7, 8, 9]


@guarantee("Deletion and retention", "With an empty `cleanup.policy` retention removes nothing.")
def test_a_topic_whose_cleanup_policy_is_empty_keeps_everything(retaining_broker: BrokerProcess, topic: str) -> None:
    kept = f"{topic}-kept"
    with retaining_broker.connect() as wire:
        create_topic(wire, kept, cleanup_policy="", retention_ms="1", retention_bytes="0")
        create_topic(wire, topic, retention_ms="1")
        append(wire, kept, batch_of(b"a"))
        append(wire, topic, batch_of(b"b"))
        wait_until(lambda: list_offset(wire, topic, EARLIEST).offset == 1, "the other topic is emptied")
        assert list_offset(wire, kept, EARLIEST).offset == 0
        assert alter(wire, TOPIC, kept, ("cleanup.policy", SET, "delete")) == (0, None)
        wait_until(lambda: list_offset(wire, kept, EARLIEST).offset == 1, "the new policy holds")


@guarantee("Deletion and retention", "A limit that is altered holds from the next check on.")
def test_a_limit_that_is_set_later_holds_from_the_next_check_on(
    retaining_broker: BrokerProcess, objects: Callable[[], int], topic: str
) -> None:
    with retaining_broker.connect() as wire:
        create_topic(wire, topic, retention_ms="-1")
        append(wire, topic, timed_batch(1), timed_batch(SystemClock().now_ms()))
        assert list_offset(wire, topic, EARLIEST).offset == 0
        assert alter(wire, TOPIC, topic, ("retention.ms", SET, "3600000")) == (0, None)
        wait_until(lambda: objects() == 1, "the new limit holds")
        assert list_offset(wire, topic, EARLIEST).offset == 1


@guarantee("Deletion and retention", "Retention loses nothing that is produced meanwhile.")
def test_nothing_is_lost_that_is_produced_while_retention_is_at_work(new_broker: BrokerFactory, topic: str) -> None:
    broker = new_broker(SOON | {"diskless.metadata.topic.num.partitions": "2"})
    kept, partitions = f"{topic}-kept", 3
    with broker.connect() as wire:
        create_topic(wire, kept, partitions, retention_ms="-1")
        create_topic(wire, topic, partitions, retention_bytes="1000", retention_ms="-1")
        expected: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        for number in range(150):
            partition, value = number % partitions, b"%d" % number
            requests = [produce_request(name, {partition: batch_of(value)}) for name in (kept, topic)]
            wire.send_together(*requests, version=PRODUCE_VERSION)
            for _ in requests:
                assert wire.receive().responses[0].partition_responses[0].error_code == 0
            expected[partition].append(value)
        for partition, values in expected.items():
            assert values_from(wire, kept, 0, partition) == values
            start = first_kept(values, 1000)
            wait_until(
                lambda partition=partition, start=start: list_offset(wire, topic, EARLIEST, partition).offset == start,
                "what is over the limit is gone",
            )
            assert values_from(wire, topic, start, partition) == values[start:]
    broker.restart()
    with broker.connect() as wire:
        for partition, values in expected.items():
            assert values_from(wire, kept, 0, partition) == values


@guarantee("Deletion and retention", "Retention keeps up with producers.")
def test_a_broker_at_work_for_a_while_keeps_no_more_objects_than_it_needs(
    retaining_broker: BrokerProcess, objects: Callable[[], int], topic: str
) -> None:
    with retaining_broker.connect() as wire:
        create_topic(wire, topic, retention_bytes="0", retention_ms="-1")
        for _ in range(100):
            append(wire, topic, batch_of(b"short-lived"))
        wait_until(lambda: not objects(), "objects of an empty topic are gone")
        assert (list_offset(wire, topic, EARLIEST).offset, list_offset(wire, topic, LATEST).offset) == (100, 100)


@guarantee(
    "Deletion and retention",
    "A topic that is deleted and one that takes its name at once have nothing in common.",
)
def test_a_deleted_topic_gives_its_objects_back_and_its_successor_keeps_its_own(
    retaining_broker: BrokerProcess, objects: Callable[[], int], topic: str
) -> None:
    with retaining_broker.connect() as wire:
        create_topic(wire, topic)
        append(wire, topic, *(batch_of(b"%d" % number) for number in range(5)))
        assert delete_topic(wire, topic) == 0
        create_topic(wire, topic)
        append(wire, topic, batch_of(b"successor"))
        wait_until(lambda: objects() == 1, "objects of a deleted topic are gone")
        assert values_from(wire, topic, 0) == [b"successor"]
