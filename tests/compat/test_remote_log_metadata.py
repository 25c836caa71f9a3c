"""Apache Kafka's own classes make of events of remote segments what ours do: bytes, partitions, text, lookups."""

from __future__ import annotations

import random
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from diskless_core.cli import remote_log_topic
from diskless_core.cli.main import main
from diskless_core.remote_log.formatter import format_record
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    partition_of,
)
from diskless_core.remote_log.partition_log import PartitionLog
from diskless_core.remote_log.records import TOPIC, decode, encode, metadata_partition
from diskless_core.testing.remote_log_metadata_tools import deletion, segment, update
from tests.compat.kafka_tools import KafkaTools
from tests.support.apache_kafka import free_ports, java
from tests.support.remote_log import EVENTS, epoch_range
from tests.support.requests import create_topic

EVENTS_PROGRAM = Path(__file__).parents[1] / "kafka" / "RemoteLogEvents.java"
KAFKA_RECORDS = Path(__file__).parents[1] / "unit" / "remote_log" / "kafka_records.tsv"
_SERIALIZATION = "org.apache.kafka.server.log.remote.metadata.storage.serialization"
FORMATTER = f"{_SERIALIZATION}.RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
TIMEOUT_S = 300
EPOCHS = 4
OFFSETS = 120

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def kafka_says(jars: Path, lines: list[str], *arguments: object) -> list[list[str]]:
    """The lines that the program writes, in their columns."""
    done = subprocess.run(
        java(jars, str(EVENTS_PROGRAM), *map(str, arguments), log_level="off"),
        input="\n".join(lines),
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def random_event(rng: random.Random):
    partition = TopicIdPartition(
        uuid.UUID(int=rng.getrandbits(128)),
        "".join(rng.choices("abzABZ019._-", k=rng.randint(1, 249))),
        rng.randint(0, 2**31 - 1),
    )
    start = rng.randint(0, 2 ** rng.randint(1, 50))
    epochs = sorted(rng.sample(range(2**31 - 1), rng.choice((1, 1, 2, 5))))
    metadata = replace(
        segment(rng.getrandbits(128), start, start + rng.randint(10, 2**31 - 1), partition=partition),
        max_timestamp_ms=rng.choice((-1, 0, rng.getrandbits(42))),
        broker_id=rng.randint(-1, 2**31 - 1),
        event_timestamp_ms=rng.getrandbits(42),
        segment_size_bytes=rng.randint(1, 2**31 - 1),
        segment_leader_epochs={epoch: start + number for number, epoch in enumerate(epochs)},
        state=rng.choice(list(RemoteLogSegmentState)),
        custom_metadata=rng.choice((None, b"", rng.randbytes(rng.randint(1, 300)))),
        txn_index_empty=rng.random() < 0.5,
    )
    match rng.randrange(3):
        case 0:
            return metadata
        case 1:
            changed = update(metadata, metadata.state, custom_metadata=metadata.custom_metadata)
            return replace(changed, event_timestamp_ms=metadata.event_timestamp_ms, broker_id=metadata.broker_id)
        case _:
            return replace(
                deletion(rng.choice(list(RemotePartitionDeleteState)), partition), broker_id=metadata.broker_id
            )


def test_kafka_reads_and_writes_the_same_bytes_and_prints_the_same_text(kafka_jars):
    rng = random.Random(405)
    events = [*EVENTS, *(random_event(rng) for _ in range(400))]
    count = 50
    said = kafka_says(kafka_jars, [encode(event).hex() for event in events], "records", count)
    assert len(said) == len(events)
    for event, (value, partition, text) in zip(events, said, strict=True):
        assert encode(event).hex() == value
        assert decode(bytes.fromhex(value)) == event
        topic_id, _, number = partition_of(event)
        assert metadata_partition(topic_id, number, count) == int(partition)
        assert format_record(7, 11, event) == text
    written_down = [line.split("\t") for line in KAFKA_RECORDS.read_text(encoding="utf-8").splitlines()]
    assert written_down == said[: len(EVENTS)]


class Upload:
    """What leaders of a partition do to its remote segments, one after the other, as Kafka's own do.

    Each copies the next records of the log. A new leader may copy again what the one before has copied, up to the end
    and beyond. Copies that never ended and replaced ones are deleted, then the oldest of the others.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.events = []
        self.referenced = []
        self.refuse = []
        self.next_copy = 0
        self.starts = {0: 0}
        self.end = 0

    def run(self, steps: int):
        while len(self.events) < steps and self.end < OFFSETS - 20:
            self.rng.choice((self.copy, self.copy, self.copy, self.copy_again, self.new_leader, self.delete))()
        return self.events

    def new_leader(self) -> None:
        epoch = max(self.starts) + 1
        if epoch < EPOCHS and self.starts[epoch - 1] < self.end:
            self.starts[epoch] = self.end

    def copy(self) -> None:
        self._copy(self.end, self.end + self.rng.randint(1, 9))

    def copy_again(self) -> None:
        if self.referenced:
            first = self.rng.choice(self.referenced[-3:])
            self._copy(first.start_offset, self.end + self.rng.randint(0, 5))

    def delete(self) -> None:
        while self.refuse:
            self._delete(self.refuse.pop())
        if len(self.referenced) > 1:
            self._delete(self.referenced.pop(0))

    def _copy(self, start: int, behind: int) -> None:
        if behind == start:
            return
        epochs = {
            epoch: max(begin, start)
            for epoch, begin in self.starts.items()
            if begin < behind and self.starts.get(epoch + 1, behind) > start
        }
        self.next_copy += 1
        metadata = segment(self.next_copy, start, behind - 1, epochs=epochs)
        self.events.append(metadata)
        if self.rng.random() < 0.2:
            self.refuse.append(metadata)
            return
        self._update(metadata, FINISHED)
        self.refuse += [known for known in self.referenced if known.start_offset >= start]
        self.referenced = [known for known in self.referenced if known.start_offset < start] + [metadata]
        self.end = max(self.end, behind)

    def _delete(self, metadata) -> None:
        self._update(metadata, DELETING)
        self._update(metadata, DELETED)

    def _update(self, metadata, state) -> None:
        self.events.append(update(metadata, state, after_ms=len(self.events)))


def number_of(metadata) -> str:
    return "-" if metadata is None else f"{metadata.segment_id.id.int}:{metadata.state.value}"


def numbers_of(log: PartitionLog, epoch: int | None = None) -> list[str]:
    return sorted(map(number_of, log.segments(epoch)))


def replayed_beside_kafka(jars: Path, sequences):
    """Our answers and Kafka's after each event of each sequence, which begin anew."""
    lines = [line for events in sequences for line in ("new", *(encode(event).hex() for event in events))]
    said = iter(kafka_says(jars, lines, "cache", EPOCHS, OFFSETS))
    for events in sequences:
        log = PartitionLog()
        for event in events:
            log.apply(event)
            everything, *columns = next(said)
            answers = [
                (listed.split(), highest, found.split())
                for listed, highest, found in zip(columns[::3], columns[1::3], columns[2::3], strict=True)
            ]
            yield log, everything.split(), answers
    assert next(said, None) is None


def test_kafka_finds_the_same_segments_in_what_leaders_do_one_after_the_other(kafka_jars):
    uploads = [Upload(random.Random(seed)).run(120) for seed in range(40)]
    found = 0
    for log, everything, answers in replayed_beside_kafka(kafka_jars, uploads):
        assert numbers_of(log) == sorted(everything)
        for epoch, (listed, highest, at_offsets) in enumerate(answers):
            assert numbers_of(log, epoch) == sorted(listed)
            assert [number_of(log.find(epoch, offset)) for offset in range(OFFSETS)] == at_offsets
            # Kafka goes on to tell the highest offset of an epoch whose segments are all deleted.
            assert log.highest_offset(epoch) in (None, None if highest == "-" else int(highest))
            found += sum(answer != "-" for answer in at_offsets)
            if any(answer != "-" for answer in at_offsets):
                assert str(log.highest_offset(epoch)) == highest
    assert found > 10_000


def test_whatever_happens_what_kafka_finds_is_found_here_too(kafka_jars):
    sequences = [interleaved(random.Random(seed)) for seed in range(60)]
    hidden_by_kafka = 0
    for log, everything, answers in replayed_beside_kafka(kafka_jars, sequences):
        assert numbers_of(log) == sorted(everything)
        for epoch, (_, highest, at_offsets) in enumerate(answers):
            for offset, theirs in enumerate(at_offsets):
                ours = log.find(epoch, offset)
                assert ours is not None or theirs == "-"
                if ours is not None:
                    first, last = epoch_range(ours, epoch)
                    assert first <= offset <= last
                    assert ours.state is FINISHED
                hidden_by_kafka += ours is not None and theirs == "-"
            assert log.highest_offset(epoch) is None or log.highest_offset(epoch) <= int(highest)
    assert hidden_by_kafka, "Kafka loses sight of no segment any more: then the answers can be compared as they are"


def interleaved(rng: random.Random):
    """Segments that overlap as they please, and whose events come in any order that KIP-405 allows."""
    lives = []
    for number in range(8):
        start = rng.randrange(OFFSETS - 30)
        epoch = rng.randrange(EPOCHS - 1)
        middle = start + rng.randint(1, 10)
        epochs = rng.choice(({epoch: start}, {epoch: start, epoch + 1: middle}))
        metadata = segment(number, start, middle + rng.randint(0, 15), epochs=epochs)
        path = rng.choice(((FINISHED,), (FINISHED, DELETING, DELETED), (DELETING, DELETED)))
        lives.append([metadata, *(update(metadata, state, after_ms=number) for state in path)])
    events = []
    while lives:
        life = rng.choice(lives)
        events.append(life.pop(0))
        if not life:
            lives.remove(life)
    return events


def test_a_repeated_event_changes_nothing_in_kafka_either(kafka_jars):
    begun = segment(1, 0, 9)
    path = [begun, *(update(begun, state) for state in (FINISHED, DELETING))]
    sequences = [
        [event for event in path for _ in range(2 if event.state is repeated else 1)]
        for repeated in (STARTED, FINISHED, DELETING)
    ]
    for log, everything, answers in replayed_beside_kafka(kafka_jars, sequences):
        assert numbers_of(log) == everything
        assert [number_of(log.find(0, offset)) for offset in range(OFFSETS)] == answers[0][2]


def produce(bootstrap: str, values: list[tuple[int, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, value in values:
        producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def dump(*arguments: str):
    return CliRunner().invoke(main, ["remote-log", "dump", *arguments])


@pytest.fixture
def topic_of_events(new_broker):
    """A broker that is alone with the topic, which has three partitions and holds `EVENTS`."""
    broker = new_broker()
    with broker.connect() as wire:
        create_topic(wire, TOPIC, partitions=3)
    placed = [(metadata_partition(partition_of(event)[0], partition_of(event)[2], 3), event) for event in EVENTS]
    produce(broker.bootstrap, [(partition, encode(event)) for partition, event in placed])
    return broker


def test_the_topic_is_dumped_as_kafkas_console_consumer_prints_it(topic_of_events, kafka_jars, tool_runner):
    tools = KafkaTools(kafka_jars, tool_runner, topic_of_events.bootstrap)
    printed = tools.out(
        "kafka-console-consumer",
        *("--topic", TOPIC, "--from-beginning", "--max-messages", str(len(EVENTS))),
        *("--formatter", FORMATTER, "--timeout-ms", str(TIMEOUT_S * 1000)),
    )
    dumped = dump("--kafka", topic_of_events.bootstrap)
    assert dumped.exit_code == 0, dumped.output
    assert sorted(dumped.stdout.splitlines()) == sorted(printed.splitlines())
    assert len(dumped.stdout.splitlines()) == len(EVENTS)
    orders = dump("--kafka", topic_of_events.bootstrap, "--topic", "orders", "--partition", "3").stdout.splitlines()
    assert len(orders) == len([event for event in EVENTS if partition_of(event).topic == "orders"])
    assert dump("--kafka", topic_of_events.bootstrap, "--topic", "orders", "--partition", "4").stdout == ""


def test_a_damaged_record_is_told_and_the_others_are_dumped_all_the_same(topic_of_events):
    produce(topic_of_events.bootstrap, [(0, b"\1\7\0"), (0, encode(EVENTS[0]))])
    dumped = dump("--kafka", topic_of_events.bootstrap)
    assert dumped.exit_code == 1
    assert len(dumped.stdout.splitlines()) == len(EVENTS) + 1
    assert "does not know the record with api key 7, version 0" in dumped.stderr


def test_a_cluster_without_the_topic_is_told(new_broker):
    without = dump("--kafka", new_broker().bootstrap)
    assert (without.exit_code, "has no topic __remote_log_metadata" in without.stderr) == (1, True)


def test_a_cluster_that_does_not_answer_is_told(monkeypatch):
    monkeypatch.setattr(remote_log_topic, "CONNECT_TIMEOUT_MS", 200)
    nobody = dump("--kafka", f"127.0.0.1:{free_ports(1)[0]}")
    assert (nobody.exit_code, "does not let __remote_log_metadata be read" in nobody.stderr) == (1, True)
