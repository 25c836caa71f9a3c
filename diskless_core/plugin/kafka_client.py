"""Clients of an Apache Kafka for all of the product: confluent-kafka, made the same way, with its errors and its logs.

What is made here never creates a topic unasked, and writes nothing to standard error. An admin client is a context
manager; a consumer has `close()`; a producer is for `close_producer`. Import this module where a Kafka is used, not
where a broker starts: it loads librdkafka.
"""

from __future__ import annotations

import base64
import logging
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec, TopicDescription
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from diskless_core.protocol.errors import ErrorCode

T = TypeVar("T")

END_OF_PARTITION: int = KafkaError._PARTITION_EOF
"""Code of what a consumer gets at the end of a partition, with `enable.partition.eof`."""

ALL_BROKERS_DOWN: int = KafkaError._ALL_BROKERS_DOWN
"""Code of what a client tells when it has lost the last broker, after the error that says why."""

CLOSED: int = KafkaError._DESTROY
"""Code of what a client was asked after it was closed."""

_DEFAULTS = {"socket.timeout.ms": 30_000}
_CONSUMER_DEFAULTS = {
    "check.crcs": True,
    "isolation.level": "read_uncommitted",
    # what is read ahead of a slow reader: 64 MiB unless told otherwise
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 20,
}
_WAIT_S = 0.1
_PURGE_S = 1.0
_REFRESH_S = 5.0
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_LOST_RECORDS = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
_UNKNOWN_PARTITIONS = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
_REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_NEVER = (
    *_REFUSALS,
    KafkaError._INVALID_ARG,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError._UNKNOWN_PROTOCOL,
)

_log = logging.getLogger(__name__)
# a command that sets up no logging tells its errors itself
_log.addHandler(logging.NullHandler())


class KafkaClientError(Exception):
    """What an Apache Kafka, or the client, has against something.

    Attributes:
        code: Kafka's error code; below 0 one of librdkafka's own.
        retriable: whether it may work later on.
        is_fatal: whether the client can do no more, and another has to be made.
        has_lost_records: whether what was to be read is not in the topic any more.
    """

    def __init__(self, message: str, *, code: int, retriable: bool, is_fatal: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable
        self.is_fatal = is_fatal

    @property
    def has_lost_records(self) -> bool:
        return self.code in _LOST_RECORDS

    @property
    def is_unknown_partition(self) -> bool:
        """Whether there is no such topic or partition: it was deleted, or is too new to be known everywhere."""
        return self.code in _UNKNOWN_PARTITIONS


class _Closing(Protocol):
    def is_set(self) -> bool: ...


def failure(error: KafkaError) -> KafkaClientError:
    """An error of librdkafka, such as one in place of a message."""
    code = error.code()
    is_fatal = error.fatal() or code == KafkaError._FATAL
    return KafkaClientError(error_text(error), code=code, retriable=_is_retriable(code), is_fatal=is_fatal)


def error_text(error: KafkaError) -> str:
    """What an error of librdkafka means, in the broker's words if it had any."""
    told = error.str().strip()
    # a broker that gives no message leaves only the request's name, if anything
    return KafkaError(error.code()).str() if not told or told.endswith(":") else told


@contextmanager
def errors() -> Iterator[None]:
    """Within it, exceptions of confluent-kafka are `KafkaClientError`; a full queue is a retriable one."""
    try:
        yield
    except KafkaException as error:
        raise failure(error.args[0]) from error
    except BufferError as error:
        raise KafkaClientError(str(error), code=KafkaError._QUEUE_FULL, retriable=True) from error


def open_admin(options: Mapping[str, Any], timeout_s: float, closing: _Closing | None = None) -> AdminClient:
    """An admin client that has reached a broker.

    Args:
        options: settings by librdkafka's names.
        timeout_s: how long to try.
        closing: once it is set, trying ends.

    Raises:
        KafkaClientError: none was reached, which is retriable, or one refuses, or an option is wrong.
        OSError: a file of the TLS settings cannot be read.
    """
    trouble = _Trouble()
    admin = _made(AdminClient, {**options, "error_cb": trouble})
    try:
        for _ in range(math.ceil(timeout_s / _WAIT_S)):
            if closing is not None and closing.is_set():
                break
            if _has_reached_a_broker(admin):
                return admin
            admin.poll(0)
            if trouble.refusal is not None:
                raise failure(trouble.refusal)
        said = f": {trouble.last.str()}" if trouble.last is not None else ""
        raise KafkaClientError(
            f"no broker was reached within {timeout_s:g} s{said}", code=KafkaError._TIMED_OUT, retriable=True
        )
    except BaseException:
        close_admin(admin)
        raise


def open_producer(options: Mapping[str, Any]) -> Producer:
    """A producer whose records come once and in order, or not at all. It connects in the background.

    `poll` or `flush` have to be called, for the callbacks and for what it logs.

    Raises:
        KafkaClientError, OSError: as `open_admin`, about the options.
    """
    return _made(Producer, {"linger.ms": 0, **options, "acks": "all", "enable.idempotence": True})


def open_consumer(options: Mapping[str, Any]) -> Consumer:
    """A consumer for `assign`, which joins no group and commits nothing. It connects in the background.

    Messages have their checksums verified. An offset that is out of range is an error in place of a message, and so
    is a log that was truncated; the partition is read on after it was assigned again. librdkafka looks for the
    coordinator of a group named like the client nevertheless; that the group is forbidden does no harm.

    Raises:
        KafkaClientError, OSError: as `open_admin`, about the options.
    """
    required = {
        "group.id": options.get("client.id", "diskless"),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }
    return _made(Consumer, {**_CONSUMER_DEFAULTS, **options, **required})


def open_member(options: Mapping[str, Any], group: str) -> Consumer:
    """A consumer for `subscribe`, as a member of a group that moves no partition needlessly (cooperative, sticky).

    It commits what it is told to commit. It connects in the background.

    Raises:
        KafkaClientError, OSError: as `open_admin`, about the options.
    """
    required = {
        "group.id": group,
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "latest",
    }
    return _made(Consumer, {**_CONSUMER_DEFAULTS, **options, **required})


def close_admin(admin: AdminClient) -> None:
    """Disconnect. Requests under way are never answered."""
    admin.__exit__(None, None, None)


def close_producer(producer: Producer, timeout_s: float) -> None:
    """Close a producer; what it has not written by then fails."""
    if producer.flush(timeout_s):
        producer.purge()
        producer.flush(_PURGE_S)
    producer.close()


def answer(asked: Mapping[Any, Future[Any]]) -> Any:
    """What an admin client was told about the one thing that it asked for. Blocks.

    Raises:
        KafkaClientError: a refusal, or no answer.
    """
    (told,) = asked.values()
    with errors():
        return told.result()


def describe_topic(admin: AdminClient, name: str) -> TopicDescription | None:
    """A topic, or None where there is none. Blocks; errors as `answer`."""
    try:
        found: TopicDescription = answer(admin.describe_topics(TopicCollection([name])))
    except KafkaClientError as error:
        if error.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return found


def list_offsets(
    admin: AdminClient, topic: str, partitions: Iterable[int], position: OffsetSpec
) -> dict[int, ListOffsetsResultInfo]:
    """The offset of a position in partitions of a topic, and its leader epoch: for the end, the leader's own.

    Blocks, also while partitions change their leaders; errors as `answer`.
    """
    asked = {TopicPartition(topic, number): position for number in partitions}
    return Retrying(**LEADERS_CHANGE)(_listed, admin, asked)


def _listed(admin: AdminClient, asked: Mapping[TopicPartition, OffsetSpec]) -> dict[int, ListOffsetsResultInfo]:
    try:
        with errors():
            answers = admin.list_offsets(dict(asked))
            return {partition.partition: told.result() for partition, told in answers.items()}
    except KafkaClientError as error:
        if _passes(error):
            _refresh_leaders(admin, {partition.topic for partition in asked})
        raise


def _refresh_leaders(admin: AdminClient, topics: Iterable[str]) -> None:
    """Let librdkafka ask who leads: after an error that says that its cached leader is an old one, it does not."""
    with suppress(KafkaException):
        for topic in topics:
            admin.list_topics(topic, timeout=_REFRESH_S)


def topic_uuid(described: TopicDescription) -> uuid.UUID:
    """The id in a described topic, which librdkafka gives as Kafka writes it: base64."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{described.topic_id}=="))


def _passes(error: BaseException) -> bool:
    """Whether a broker refused what it will soon not refuse: most often, a new partition has no leader yet."""
    return isinstance(error, KafkaClientError) and error.code > 0 and error.retriable


LEADERS_CHANGE: Mapping[str, Any] = {
    "retry": retry_if_exception(_passes),
    "stop": stop_after_delay(10),
    "wait": wait_fixed(0.05),
    "reraise": True,
}
"""How tenacity repeats a request that leaders of partitions have to answer."""


class _Trouble:
    """The last error of a client, and the last that trying again does not help against."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.refusal: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() != ALL_BROKERS_DOWN:
            self.last = error
        if error.code() in _REFUSALS:
            self.refusal = error


class _Log:
    """Where a client's lines go. It goes on trying after whatever it calls an error, and says the same each time."""

    def __init__(self) -> None:
        self._said = ""

    def log(self, level: int, message: str, *arguments: object) -> None:
        line = message % arguments
        said, _, _ = line.partition(" (after ")
        _log.log(logging.DEBUG if said == self._said else min(level, logging.WARNING), "%s", line)
        self._said = said


def _made(make: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> T:
    required = {"allow.auto.create.topics": False, "logger": _Log()}
    return make_client(make, {**_DEFAULTS, "error_cb": _ignore, **options, **required})


def make_client(make: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> T:
    """Any client of confluent-kafka, with these options and no others.

    Raises:
        KafkaClientError, OSError: as `open_admin`, about the options.
    """
    for name in _FILES:
        if name in options:
            _check_readable(str(options[name]))
    try:
        with errors():
            return make(dict(options))
    except (TypeError, ValueError) as error:
        raise KafkaClientError(str(error), code=KafkaError._INVALID_ARG, retriable=False) from error


def _check_readable(path: str) -> None:
    """librdkafka would not say which file it is, nor what is wrong with it."""
    os.stat(path)  # noqa: PTH116
    if not os.access(path, os.R_OK):
        raise PermissionError(f"{path} cannot be read")


def _ignore(error: KafkaError) -> None:
    """The same is logged."""


def _has_reached_a_broker(admin: AdminClient) -> bool:
    try:
        admin.cluster_id(timeout=_WAIT_S)
    except KafkaException:
        return False
    return True


def _is_retriable(code: int) -> bool:
    if code < 0:
        return code not in _NEVER
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
