"""Idempotent producers of both client families that number their records, and the check of what became of these."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import confluent_kafka

from tests.support.apache_kafka import java
from tests.support.waiting import wait_until

TOPIC, PARTITIONS = "produced-by-all", 3
LIMIT_S = 300.0
NEVER_MS = 2_000_000_000
UNANSWERED = 100
"""Records that a producer has under way at most."""

BUFFER_BYTES = 16_000
"""What Java's may have, which is about as much: on a slow machine a longer queue would take long to send in the end."""

NEVER_SENT = "Producer closed while allocating memory"
"""What Java says of the record that waits for a place in that memory when the producer is ended."""

PROGRESS = 50
"""Records of each producer that are acknowledged before the next broker is disturbed."""


class Sender(ABC):
    """An idempotent producer of numbered records, and what it was told. Its name is a number too: Java's wants one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.trouble: list[str] = []

    def note(self, number: int, partition: int, offset: int) -> None:
        if number in self.acknowledged:
            self.trouble.append(f"{number} is acknowledged twice")
        self.acknowledged[number] = partition, offset

    @abstractmethod
    def end(self) -> None:
        """Send no more, and wait for all answers."""


class Librdkafka(Sender):
    """Sends batches of a few records to all partitions in turn, as fast as it may."""

    def __init__(self, name: str, bootstrap: str, settings: Mapping[str, str | int] | None = None) -> None:
        super().__init__(name)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": 0,
                "batch.num.messages": 3,
                "message.timeout.ms": NEVER_MS,
                "request.timeout.ms": 10_000,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "error_cb": self._hear,
                "log_level": 0,
                **(settings or {}),
            }
        )
        self._ends = threading.Event()
        self._sent = 0
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            if len(self._producer) < UNANSWERED:
                value, partition = b"%s.%d" % (self.name.encode(), self._sent), self._sent % PARTITIONS
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._answered)
                self._sent += 1
            self._producer.poll(0.002)

    def _hear(self, error: confluent_kafka.KafkaError) -> None:
        if error.fatal():
            self.trouble.append(f"fatal: {error}")

    def _answered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        value, partition, offset = message.value(), message.partition(), message.offset()
        if error is not None:
            self.trouble.append(str(error))
        elif value is None or partition is None or offset is None:
            self.trouble.append("an answer without a place")
        else:
            self.note(int(value.decode().rpartition(".")[2]), partition, offset)

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(LIMIT_S) == 0, "some records never got an answer"
        assert len(self.acknowledged) == self._sent, self.trouble


class Java(Sender):
    """Apache Kafka's verifiable producer."""

    def __init__(
        self, name: str, bootstrap: str, jars: Path, folder: Path, settings: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__(name)
        file = folder / "java-producer.properties"
        file.write_text(
            f"enable.idempotence=true\nmax.in.flight.requests.per.connection=5\nlinger.ms=0\nbatch.size=50\n"
            f"retries={NEVER_MS}\ndelivery.timeout.ms={NEVER_MS}\nrequest.timeout.ms=10000\nmax.block.ms=600000\n"
            f"reconnect.backoff.max.ms=500\nbuffer.memory={BUFFER_BYTES}\n"
            + "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
        )
        self._log = folder / "java-producer.log"
        arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--throughput", "300", "--acks", "-1"]
        arguments += ["--value-prefix", name, "--command-config", str(file)]
        command = java(jars, "org.apache.kafka.tools.VerifiableProducer", *arguments)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._thread = threading.Thread(target=self._read, name=name)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                if event["name"] == "producer_send_success":
                    self.note(int(event["value"].rpartition(".")[2]), event["partition"], event["offset"])
                elif event["name"] == "producer_send_error" and event["message"] != NEVER_SENT:
                    self.trouble.append(event["message"])
        if self._process.wait() not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            self.trouble.append(self._log.read_text())

    def end(self) -> None:
        self._process.terminate()  # it closes its producer, which waits for the answers
        try:
            self._process.wait(LIMIT_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._thread.join()
        assert sorted(self.acknowledged) == list(range(len(self.acknowledged))), self._log.read_text()


def go_on(senders: Sequence[Sender]) -> None:
    """Wait until every producer has been acknowledged some more."""
    before = [len(sender.acknowledged) for sender in senders]

    def have_gone_on() -> bool:
        assert not any(sender.trouble for sender in senders), [sender.trouble for sender in senders]
        return all(len(one.acknowledged) >= count + PROGRESS for one, count in zip(senders, before, strict=True))

    wait_until(have_gone_on, "all producers go on")


def read_all(bootstrap: str) -> dict[tuple[int, int], tuple[str, int]]:
    """The producer and the number of each record, by its partition and its offset."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True})
    try:
        ends = {
            at: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, at), LIMIT_S)
            for at in range(PARTITIONS)
        }
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, 0) for partition in ends])
        found: dict[tuple[int, int], tuple[str, int]] = {}

        def is_read() -> bool:
            for message in consumer.consume(1000, 0.2):
                value, partition, offset = message.value(), message.partition(), message.offset()
                assert message.error() is None, message.error()
                assert value is not None
                assert partition is not None
                assert offset is not None
                name, _, number = value.decode().rpartition(".")
                found[partition, offset] = name, int(number)
            return len(found) >= sum(end for _, end in ends.values())

        wait_until(is_read, "all records are read")
        return found
    finally:
        consumer.close()


def require_each_once_and_in_order(senders: Sequence[Sender], bootstrap: str) -> None:
    """No producer has seen trouble, and every partition has each of their records once, where it was acknowledged."""
    trouble = {sender.name: sender.trouble for sender in senders if sender.trouble}
    assert not trouble, trouble
    written = read_all(bootstrap)
    places = {(sender.name, number): place for sender in senders for number, place in sender.acknowledged.items()}
    assert {record: place for place, record in written.items()} == places
    assert len(written) == len(places), "each record is there once"
    order = defaultdict[tuple[int, str], list[int]](list)
    for (partition, _), (name, number) in sorted(written.items()):
        order[partition, name].append(number)
    assert all(numbers == sorted(numbers) for numbers in order.values())
