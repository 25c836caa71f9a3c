"""Groups of real clients while the brokers that lead them are killed and stopped: three processes on one bucket.

Every client reads one topic in a group of its own. All groups are in one shard, so that each change of its leader is a
change for all of them.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from diskless_core.groups.routing import shard_index
from diskless_core.protocol import messages
from tests.compat.clients import CLIENTS, CommitRefusedError, Member
from tests.compat.kafka_tools import MAIN_CLASSES
from tests.support.apache_kafka import java
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.requests import create_topic, metadata_request
from tests.support.waiting import wait_until

TOPIC, PARTITIONS = "read-by-all", 2
SHARDS = 4
SHARD = 1
"""The one that all groups are in."""


class Reader(ABC):
    """A member of a group of its own, with the numbers that it has read."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.seen: set[int] = set()
        self.went_back: list[str] = []
        self.assignments = 0
        self._committed = dict.fromkeys(range(PARTITIONS), 0)

    def note(self, partition: int, offset: int, value: bytes) -> None:
        """A record was read, by a member whose earlier commits were answered."""
        self.seen.add(int(value))
        if offset < self._committed[partition]:
            self.went_back.append(f"{partition}: {offset} is read after {self._committed[partition]} was committed")

    def note_commit(self, partition: int, offset: int) -> None:
        self._committed[partition] = max(offset, self._committed[partition])

    @property
    def committed(self) -> dict[int, int]:
        return dict(self._committed)

    @abstractmethod
    def end(self) -> None: ...


class PythonReader(Reader):
    """Polls and commits in a thread, as an application does."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=group)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self._failure = error

    def _read(self) -> None:
        member = self._join()
        try:
            while not self._ends.is_set():
                records = member.poll()
                for record in records:
                    assert record.value is not None
                    self.note(record.partition, record.offset, record.value)
                offsets = {record.partition: record.offset + 1 for record in records}
                if offsets and self._commit(member, offsets):
                    for entry in offsets.items():
                        self.note_commit(*entry)
        finally:
            member.close()

    @abstractmethod
    def _join(self) -> Member: ...

    def _commit(self, member: Member, offsets: dict[int, int]) -> bool:
        try:
            member.commit(offsets)
        except CommitRefusedError:
            return False
        return True

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


class LibraryReader(PythonReader):
    """kafka-python or aiokafka, in the classic protocol."""

    def __init__(self, library: str, bootstrap: str, group: str) -> None:
        self._client = CLIENTS[library](bootstrap)
        super().__init__(group)

    def _join(self) -> Member:
        return self._client.join(TOPIC, self.group)


class LibrdkafkaReader(PythonReader):
    """librdkafka, in any protocol."""

    def __init__(self, bootstrap: str, group: str, **settings: Any) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 2,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        super().__init__(group)

    def _join(self) -> Member:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.subscribe([TOPIC], on_assign=self._assigned)
        return _Librdkafka(consumer)

    def _assigned(self, _consumer: Any, _partitions: Any) -> None:
        self.assignments += 1


class _Librdkafka(Member):
    """Errors of a poll are told and not raised: a consumer that does not find its coordinator says so, and goes on."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[Any]:
        found = [message for message in self._consumer.consume(500, 0.1) if _is_record(message)]
        return [_Read(one.partition(), one.offset(), one.value()) for one in found]

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = [confluent_kafka.TopicPartition(TOPIC, *entry) for entry in offsets.items()]
        try:
            results = self._consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            raise CommitRefusedError(str(error)) from error
        if any(result.error is not None for result in results):
            raise CommitRefusedError(str(results))

    def assignment(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class _Read:
    def __init__(self, partition: int, offset: int, value: bytes) -> None:
        self.partition, self.offset, self.value = partition, offset, value


def _is_record(message: Any) -> bool:
    error = message.error()
    if error is not None and error.fatal():
        raise confluent_kafka.KafkaException(error)
    return error is None


class JavaReader(Reader):
    """Kafka's verifiable consumer, which commits what it has read and writes down what happens."""

    def __init__(self, jars: Path, bootstrap: str, group: str, protocol: str) -> None:
        super().__init__(group)
        arguments = ("--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", group, "--verbose")
        more = ("--group-protocol", protocol, "--reset-policy", "earliest")
        command = java(jars, MAIN_CLASSES["kafka-verifiable-consumer"], *arguments, *more)
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._thread = threading.Thread(target=self._listen, name=group)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["name"] == "record_data":
                self.note(event["partition"], event["offset"], event["value"].encode())
            elif event["name"] == "partitions_assigned" and event["partitions"]:
                self.assignments += 1
            elif event["name"] == "offsets_committed" and event["success"]:
                for one in event["offsets"]:
                    self.note_commit(one["partition"], one["offset"])

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._thread.join()
            assert self._process.stdout is not None
            self._process.stdout.close()


class Writer:
    """Writes numbers for ever, in their order."""

    def __init__(self, bootstrap: str) -> None:
        self.written: list[int] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        )
        self._failures: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    def _run(self) -> None:
        for number in count():
            if self._ends.wait(0.02):
                return
            self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._on_delivery)
            self._producer.poll(0)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(str(error))
        else:
            self.written.append(int(message.value()))

    def end(self) -> list[int]:
        """All numbers, each of which was acknowledged."""
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert self._failures == []
        return self.written


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    made = {
        node_id: BrokerProcess(
            tmp_path / f"broker-{node_id}",
            {
                "node.id": str(node_id),
                **on_one_bucket(tmp_path),
                "offsets.topic.num.partitions": str(SHARDS),
                "group.consumer.heartbeat.interval.ms": "500",
                "group.consumer.min.heartbeat.interval.ms": "500",
            },
        )
        for node_id in (1, 2, 3)
    }
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(BrokerProcess.start, made.values()))
        yield made
    finally:
        for broker in made.values():
            broker.end()


def group_of(client: str) -> str:
    """A group of the shard, called after its client."""
    return next(name for number in count() if shard_index(name := f"{client}-{number}", SHARDS) == SHARD)


def leader_of(broker: BrokerProcess, group: str) -> int | None:
    """The leader of a group, as one broker tells its clients."""
    with broker.connect() as wire:
        [found] = wire.call(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6).coordinators
    return int(found.node_id) if found.error_code == 0 else None


def controller_of(broker: BrokerProcess) -> int:
    with broker.connect() as wire:
        return int(wire.call(metadata_request(), 12).controller_id)


def committed(broker: BrokerProcess, group: str) -> dict[int, int] | None:
    """The offsets of a group by partition; None where the broker does not lead it."""
    asked = messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    with broker.connect() as wire:
        [answer] = wire.call(messages.OffsetFetchRequest(groups=[asked]), 9).groups
    if answer.error_code != 0:
        return None
    return {one.partition_index: one.committed_offset for topic in answer.topics for one in topic.partitions}


def readers_of(jars: Path, bootstrap: str) -> Iterator[Reader]:
    yield LibrdkafkaReader(bootstrap, group_of("librdkafka-classic"))
    yield LibrdkafkaReader(bootstrap, group_of("librdkafka-static"), group_instance_id="static")
    yield LibrdkafkaReader(bootstrap, group_of("librdkafka-consumer"), group_protocol="consumer")
    yield LibraryReader("kafka-python", bootstrap, group_of("kafka-python"))
    yield LibraryReader("aiokafka", bootstrap, group_of("aiokafka"))
    yield JavaReader(jars, bootstrap, group_of("java-classic"), "classic")
    yield JavaReader(jars, bootstrap, group_of("java-consumer"), "consumer")


def test_every_client_goes_on_with_its_offsets_when_the_leader_of_its_group_is_killed_and_when_it_stops(
    brokers: dict[int, BrokerProcess], kafka_jars: Path
) -> None:
    controller = controller_of(brokers[1])
    with brokers[controller].connect() as wire:
        create_topic(wire, TOPIC, PARTITIONS)
    bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
    with ExitStack() as stack:
        writer = Writer(bootstrap)
        stack.callback(writer.end)
        readers: list[Reader] = []
        for reader in readers_of(kafka_jars, bootstrap):
            readers.append(reader)
            stack.callback(reader.end)
        all_go_on(readers, writer)

        up = dict(brokers)
        leave(up, readers, writer, kill=True)
        leave(up, readers, writer, kill=False)

        written = writer.end()
        assert len(written) == len(set(written))
        wait_until(lambda: all(reader.seen >= set(written) for reader in readers), "records that were skipped")
        [last] = up.values()
        ends = {
            partition: sum(number % PARTITIONS == partition for number in written) for partition in range(PARTITIONS)
        }
        for reader in readers:
            wait_until(partial(has_committed, last, reader.group, ends), f"all offsets of {reader.group}")
        assert {reader.group: reader.went_back for reader in readers if reader.went_back} == {}
        rejoined = {reader.group: reader.assignments for reader in readers if reader.assignments > 1}
        assert rejoined == {}, "members keep their generation when a shard moves"


def leave(up: dict[int, BrokerProcess], readers: list[Reader], writer: Writer, *, kill: bool) -> None:
    """End the broker that leads the groups, and see that every client goes on and keeps its offsets."""
    group = readers[0].group
    some = next(iter(up.values()))
    leader = wait_until(lambda: leader_of(some, group), "a leader of the groups")
    assert leader is not None
    before = {reader.group: reader.committed for reader in readers}
    gone = up.pop(leader)
    if kill:
        gone.kill()
    else:
        gone.stop()
    all_go_on(readers, writer)
    for reader in readers:
        found = wait_until(partial(offsets_at, up, reader.group), f"offsets of {reader.group}")
        assert found is not None
        assert all(found[partition] >= offset for partition, offset in before[reader.group].items()), reader.group


def has_committed(broker: BrokerProcess, group: str, offsets: dict[int, int]) -> bool:
    return committed(broker, group) == offsets


def offsets_at(up: Mapping[int, BrokerProcess], group: str) -> dict[int, int] | None:
    found = [committed(broker, group) for broker in up.values()]
    return next((one for one in found if one is not None), None)


def all_go_on(readers: list[Reader], writer: Writer) -> None:
    """Every client reads and commits what is written from now on."""
    begun, last = time.monotonic(), max(writer.written, default=0)
    before = {reader.group: reader.committed for reader in readers}
    for reader in readers:
        wait_until(partial(goes_on, reader, last, before[reader.group]), f"{reader.group} goes on")
        print(f"{reader.group} went on after {time.monotonic() - begun:.1f} s")


def goes_on(reader: Reader, last: int, before: Mapping[int, int]) -> bool:
    commits = all(offset > before[partition] for partition, offset in reader.committed.items())
    return commits and max(reader.seen, default=-1) > last
