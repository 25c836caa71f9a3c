"""Stock clients at work on a cluster that is being broken: they note what they are told and give up on nothing.

librdkafka's run in threads of this process, Java's in one of their own.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.history import Acknowledged, History, Place, Polled, Sent
from tests.support.apache_kafka import java
from tests.support.requests import fetch, list_offset
from tests.support.wire import WireClient

NEVER_MS = 2_000_000_000
FINAL_READ_S = 180.0

_PADDING = 200
_IN_FLIGHT = 500
_ASK_S = 5.0
_LATEST = -1
CLIENT: Mapping[str, Any] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2_000,
    "log_level": 0,
}


class Clock:
    """Seconds since the run began."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._begun


class LibrdkafkaProducer:
    """An idempotent producer that sends `rate` records a second to all partitions in turn.

    Attributes:
        sent: how many records it has handed to the library, which are numbered from 0 on.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, number: int, rate: float, history: History, clock: Clock
    ) -> None:
        self._topic, self._partitions, self._number, self._rate = topic, partitions, number, rate
        self._history, self._clock = history, clock
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"librdkafka-{number}",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": NEVER_MS,
                "request.timeout.ms": 10_000,
                "retry.backoff.ms": 50,
                "error_cb": self._error,
                **CLIENT,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"producer {number}", daemon=True)

    def start(self) -> LibrdkafkaProducer:
        self._thread.start()
        return self

    def stop(self, timeout_s: float) -> None:
        """Send no more, and wait for the answers that are missing."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(timeout_s)
        if left:
            self._history.complain(f"producer {self._number}", f"{left} records never got an answer")

    def _run(self) -> None:
        pause_s = 1 / self._rate
        while not self._stopping.is_set():
            if len(self._producer) < _IN_FLIGHT:
                value = Sent(self._number, self.sent).value(_PADDING)
                self._producer.produce(
                    self._topic, value, partition=self.sent % self._partitions, on_delivery=self._answered
                )
                self.sent += 1
            self._producer.poll(pause_s)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._history.complain(f"producer {self._number}", f"a record failed: {error}")
            return
        offset = message.offset()
        place = Place(message.partition() or 0, offset if offset is not None else -1)
        self._history.acknowledge(Acknowledged(Sent.of(message.value() or b""), place, self._clock()))

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self._history.complain(f"producer {self._number}", f"fatal error: {error}")


class JavaProducer:
    """Apache Kafka's verifiable producer, idempotent, in a JVM of its own."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        bootstrap: str,
        topic: str,
        number: int,
        rate: int,
        history: History,
        clock: Clock,
    ) -> None:
        self._number, self._history, self._clock = number, history, clock
        settings = folder / f"java-producer-{number}.properties"
        settings.write_text(
            f"enable.idempotence=true\nretries={NEVER_MS}\ndelivery.timeout.ms={NEVER_MS}\nrequest.timeout.ms=10000\n"
            f"max.block.ms=600000\nclient.id=java-{number}\nretry.backoff.ms=50\nreconnect.backoff.max.ms=500\n"
            f"metadata.max.age.ms=2000\n"
        )
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(rate), "--acks", "-1"]
        arguments += ["--value-prefix", str(number), "--command-config", str(settings)]
        self._log = folder / f"java-producer-{number}.log"
        self._command = java(jars, "org.apache.kafka.tools.VerifiableProducer", *arguments)
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read, name=f"java producer {number}", daemon=True)

    def start(self) -> JavaProducer:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._thread.start()
        return self

    def stop(self, timeout_s: float) -> None:
        """SIGTERM: it closes its producer, which waits for the answers that are missing."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._history.complain(f"java producer {self._number}", "did not get all its answers in time")
            self._process.kill()
            self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["name"] == "producer_send_success":
                place = Place(event["partition"], event["offset"])
                self._history.acknowledge(Acknowledged(Sent.of(event["value"].encode()), place, self._clock()))
            elif event["name"] == "producer_send_error":
                self._history.complain(f"java producer {self._number}", f"a record failed: {event['message']}")


class LibrdkafkaConsumer:
    """A consumer without a group that reads every partition from its beginning."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, number: int, history: History) -> None:
        self._number, self._history = number, history
        self._consumer = _consumer(bootstrap, f"reader-{number}")
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"consumer {number}", daemon=True)

    def start(self) -> LibrdkafkaConsumer:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    self._history.poll(self._number, _polled(message))
                elif not error.retriable():
                    self._complain(error)

    def _complain(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) or error.fatal():
            self._history.complain(f"consumer {self._number}", str(error))


def read_everything(bootstrap: str, topic: str, partitions: int) -> dict[int, list[Polled]]:
    """Every record of a topic, when all is quiet.

    Raises:
        AssertionError: it cannot be read in time.
    """
    consumer = _consumer(bootstrap, "final-reader")
    deadline = time.monotonic() + FINAL_READ_S
    try:
        ends = {at: _end_of(consumer, TopicPartition(topic, at), deadline) for at in range(partitions)}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        found: dict[int, list[Polled]] = {partition: [] for partition in ends}
        while any(len(found[partition]) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, f"cannot be read whole: {ends}"
            for message in consumer.consume(5000, 0.5):
                if message.error() is None:
                    one = _polled(message)
                    found[one.place.partition].append(one)
        return found
    finally:
        consumer.close()


def read_newest(ports: Sequence[int], topic: str) -> None:
    """Have every broker read the last record of the first partition, if it can."""
    for port in ports:
        with suppress(OSError, AssertionError), WireClient("127.0.0.1", port, timeout_s=_ASK_S) as wire:
            end = list_offset(wire, topic, _LATEST).offset
            fetch(wire, topic, max(0, end - 1))


def _end_of(consumer: Consumer, place: TopicPartition, deadline: float) -> int:
    while time.monotonic() < deadline:
        with suppress(KafkaException):  # a broker may still be coming back
            found = consumer.get_watermark_offsets(place, 5)
            if found is not None:
                return found[1]
    raise AssertionError(f"nobody says where {place} ends")


def _consumer(bootstrap: str, name: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **CLIENT,
        }
    )


def _polled(message: Message) -> Polled:
    place = Place(message.partition() or 0, message.offset() or 0)
    return Polled(place, Sent.of(message.value() or b""))
