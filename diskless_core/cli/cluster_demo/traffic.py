"""The demo's clients, stock librdkafka: producers and members of a group that note what they are told in the ledger."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from diskless_core.cli.cluster_demo.ledger import Ledger, Log, Stamp
from diskless_core.clock import Clock
from diskless_core.plugin.kafka_client import END_OF_PARTITION, failure

TOPIC = "orders"
GROUP = "shop"
PARTITIONS = 6
MEMBERS = 2

METADATA_REFRESH_MS = 2_000
"""Shorter than a client's default of five minutes, so that a new broker gets clients while somebody watches."""

_PADDING = b"." * 200
_IN_FLIGHT = 5_000
_POLL_S = 0.005
_RETRY_S = 0.2
_CHUNK = 500
_LEAVE_S = 10.0
_OFTEN = {
    "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
    "reconnect.backoff.max.ms": 1_000,
    "log_level": 0,
}


class TrafficError(Exception):
    """A client did not get what it should."""


def create_topic(bootstrap: str, patience_s: float) -> None:
    """Create the demo's topic; it is tried again while coordinators are loaded, as after their brokers' start.

    Raises:
        KafkaException: it is refused, or still not possible after `patience_s`.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait = Retrying(
        stop=stop_after_delay(patience_s), wait=wait_fixed(_RETRY_S), retry=retry_if_exception(_passes), reraise=True
    )
    wait(_create_once, admin, patience_s)


def _create_once(admin: AdminClient, limit_s: float) -> None:
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS)
    created = admin.create_topics([topic], operation_timeout=limit_s, request_timeout=limit_s)[TOPIC]
    try:
        created.result(timeout=limit_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # by an attempt that had no answer
            raise


def _passes(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and failure(error.args[0]).retriable


class DemoProducer:
    """An idempotent producer of a rack, in a thread of its own: `rate` records a second to all partitions in turn."""

    def __init__(self, bootstrap: str, number: int, rack: str, rate: float, ledger: Ledger, clock: Clock) -> None:
        self._number, self._rate, self._ledger, self._clock = number, rate, ledger, clock
        self._next: dict[int, int] = defaultdict(int)
        self._ends = threading.Event()
        self._gave_up = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"demo-producer-{number} diskless_az={rack}",
                "enable.idempotence": True,
                "linger.ms": 5,
                "error_cb": partial(_hear, ledger, f"producer {number}"),
                **_OFTEN,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"producer {number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def sent(self) -> dict[tuple[int, int], int]:
        """By producer and partition how many records it has handed to the library."""
        return {(self._number, partition): count for partition, count in list(self._next.items())}

    def end(self) -> None:
        """Send no more."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join(_LEAVE_S)

    def flush(self, limit_s: float) -> int:
        """Wait for the answers that are missing, and return how many still are."""
        left: int = self._producer.flush(limit_s)
        return left

    def give_up(self) -> None:
        """Wait for no answer."""
        self._gave_up = True
        self._producer.purge()

    def _run(self) -> None:
        due_s, turn = self._clock.monotonic(), 0
        while not self._ends.is_set():
            while due_s <= self._clock.monotonic() and len(self._producer) < _IN_FLIGHT:
                self._send(turn % PARTITIONS)
                turn += 1
                due_s += 1 / self._rate
            if len(self._producer) >= _IN_FLIGHT:
                due_s = self._clock.monotonic()
            self._producer.poll(_POLL_S)

    def _send(self, partition: int) -> None:
        stamp = Stamp(self._number, partition, self._next[partition])
        self._producer.produce(
            TOPIC, stamp.value(_PADDING), partition=partition, on_delivery=partial(self._answered, stamp)
        )
        self._next[partition] += 1

    def _answered(self, stamp: Stamp, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            if not self._gave_up:
                self._ledger.refuse(str(error))
            return
        offset = message.offset()
        self._ledger.acknowledge(stamp, -1 if offset is None else offset, self._clock.monotonic())


class DemoMember:
    """A member of the group, in a thread of its own."""

    def __init__(self, bootstrap: str, number: int, rack: str, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock
        self._name = f"member {number}"
        self._ends = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"demo-consumer-{number} diskless_az={rack}",
                "client.rack": rack,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1_000,
                "error_cb": partial(_hear, ledger, self._name),
                **_OFTEN,
            }
        )
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        self._consumer.subscribe([TOPIC])
        self._thread.start()

    def end(self) -> None:
        """Leave the group."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                for message in self._consumer.consume(_CHUNK, timeout=0.1):
                    self._take(message)
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            told = failure(error)
            if told.has_lost_records or not told.retriable:
                self._ledger.complain(f"{self._name} was told: {told}")
            return
        offset, stamp = read(message)
        self._ledger.deliver(offset, stamp, self._clock.monotonic())


def _hear(ledger: Ledger, who: str, error: KafkaError) -> None:
    if error.fatal():
        ledger.complain(f"{who} was told: {error}")


def read(message: Message) -> tuple[int, Stamp]:
    """The offset and the stamp of a record.

    Raises:
        TrafficError: it is none of the demo's records.
    """
    value, partition, offset = message.value(), message.partition(), message.offset()
    if value is None or partition is None or offset is None:
        raise TrafficError("a record came without its value or its place")
    try:
        return offset, Stamp.of(_bytes(value), partition)
    except ValueError:
        raise TrafficError(f"a record came that nobody sent: {value!r}") from None


def read_everything(bootstrap: str, clock: Clock, patience_s: float) -> Log:
    """Every record of the topic from its beginning to its end.

    Raises:
        TrafficError: no record came for so long, and the end was not reached.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo-auditor",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: dict[int, list[tuple[int, Stamp]]] = {partition: [] for partition in range(PARTITIONS)}
    ended = set[int]()
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in found])
        deadline_s = clock.monotonic() + patience_s
        while len(ended) < PARTITIONS:
            messages = consumer.consume(_CHUNK, timeout=0.2)
            if messages:
                deadline_s = clock.monotonic() + patience_s
            elif clock.monotonic() > deadline_s:
                raise TrafficError(f"partitions {sorted(found.keys() - ended)} cannot be read to their end")
            _sort_in(messages, found, ended)
    finally:
        consumer.close()
    return found


def _sort_in(messages: Sequence[Message], found: dict[int, list[tuple[int, Stamp]]], ended: set[int]) -> None:
    for message in messages:
        error, partition = message.error(), message.partition()
        if error is None:
            offset, stamp = read(message)
            found[stamp.partition].append((offset, stamp))
        elif error.code() == END_OF_PARTITION and partition is not None:
            ended.add(partition)
        elif (told := failure(error)).has_lost_records or not told.retriable:
            raise TrafficError(f"the topic cannot be read: {told}")


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
