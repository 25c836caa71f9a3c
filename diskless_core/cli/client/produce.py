"""`diskless produce`: writes lines of standard input or of files as records to a topic of any Kafka."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from diskless_core.cli import common, text
from diskless_core.cli.client.cluster import Cluster, ClusterError, ConnectionErrors, made, no_partition, no_topic
from diskless_core.cli.client.options import (
    BootstrapOption,
    CommandConfigOption,
    CommandPropertyOption,
    client_properties,
    complete_topic,
    ends_on_errors,
    pairs,
    sigterm_as_interrupt,
)
from diskless_core.cli.client.records import NAMED_FORMATS, Headers, Reader, Record, RecordError, reader
from diskless_core.clock import SystemClock
from diskless_core.plugin.kafka_client import error_text

RECORD_LIMIT_BYTES = 64 << 20
"""The longest record that is sent; how long one may be is the topic's `max.message.bytes`."""

QUEUE_LIMIT_BYTES = 2 * RECORD_LIMIT_BYTES
"""How much may wait to be delivered before no more is read."""

TOPIC_TIMEOUT_S = 10.0
"""How long a broker may take to create a topic at its first use."""

_LINE_LIMIT_BYTES = 2 * RECORD_LIMIT_BYTES
_POLL_S = 0.2

app = typer.Typer(add_completion=False)


class Acks(StrEnum):
    """When a record counts as written."""

    ALL = "all"
    ONE = "1"
    NONE = "0"


class Line(NamedTuple):
    """A record's text and where it stands, for errors."""

    place: str
    content: bytes


class Delivery:
    """Sends records and counts what is not delivered. Raises `ClusterError`."""

    def __init__(self, topic: str, properties: Mapping[str, str]) -> None:
        self.sent = 0
        self.failures: Counter[str] = Counter()
        self._topic = topic
        errors = ConnectionErrors(properties["bootstrap.servers"], _tell)
        self._producer: Producer = made(
            Producer,
            properties,
            error_cb=errors.add,
            on_delivery=self._take_report,
            **{"delivery.report.only.error": True},
        )

    def wait_for_topic(self, partition: int | None) -> None:
        """Have the broker create the topic, if it does that, and check the partition."""
        clock = SystemClock()
        until = clock.monotonic() + TOPIC_TIMEOUT_S
        while True:
            found = self._metadata()
            if found.error is None:
                break
            if not found.error.retriable() or clock.monotonic() > until:
                missing = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                raise no_topic(self._topic) if missing else ClusterError(f"{self._topic}: {found.error.str()}")
            self._producer.poll(_POLL_S)
        if partition is not None and partition not in found.partitions:
            raise no_partition(self._topic, partition, len(found.partitions))

    def send(self, record: Record) -> None:
        """Give a record to the client; blocks while too much waits to be delivered."""
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                )
            except BufferError:
                self._producer.poll(_POLL_S)
                continue
            except KafkaException as error:
                if error.args[0].fatal():
                    raise ClusterError(error_text(error.args[0])) from error
                self._count_failure(error.args[0])
            break
        self.sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all is delivered, or given up by the client."""
        while self._producer.flush(_POLL_S):
            pass

    def abandon(self) -> None:
        """Count what is not delivered yet as failed."""
        if waiting := len(self._producer):
            self.failures["given up by you"] += waiting

    def _metadata(self) -> Any:
        try:
            return self._producer.list_topics(self._topic, timeout=TOPIC_TIMEOUT_S).topics[self._topic]
        except KafkaException as error:
            raise ClusterError(error_text(error.args[0])) from error

    def _take_report(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            self._count_failure(error)

    def _count_failure(self, error: KafkaError) -> None:
        reason = error_text(error)
        if reason not in self.failures:
            is_too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            raising = f": `diskless topics alter {self._topic} --config max.message.bytes=...` raises the limit"
            _tell(f"a record is not delivered: {reason}{raising if is_too_large else ''}")
        self.failures[reason] += 1


@app.command()
@ends_on_errors()
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.", autocompletion=complete_topic)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files to read, - for standard input, which is read without any."),
    ] = None,
    line_format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help=f"What a line is: {', '.join(NAMED_FORMATS)}, as consume writes it.",
        ),
    ] = "text",
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help=r"What stands between key and value, such as : or \t."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of records that have none.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of all records; can be given many times."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="The partition, instead of the key's choice."),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Each file is one record, not each of its lines.")] = False,
    acks: Annotated[
        Acks, typer.Option("--acks", help="When a record counts as written; all is idempotent too.")
    ] = Acks.ALL,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not tell how many records were written.")] = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Write records: one of each line of standard input, or of files.

    Ends with exit code 1 if a record could not be written. Ctrl-C ends the input; what was read is still written.
    """
    read = _reader(line_format, key_separator)
    common_headers = [(name, value.encode()) for name, value in pairs(header or (), "--header").items()]
    given = client_properties(bootstrap_server, command_config, command_property)
    # makes sure that the cluster answers, and says what to do if not
    Cluster(given)
    delivery = Delivery(topic, {**_defaults(acks), **given})
    delivery.wait_for_topic(partition)
    problem = None
    with sigterm_as_interrupt():
        try:
            with suppress(KeyboardInterrupt):
                for line in _lines(files or [Path("-")], whole=whole):
                    record = _record(read, line)
                    delivery.send(_completed(record, key, common_headers, partition))
        except (InputError, ClusterError) as error:
            problem = str(error)
        try:
            delivery.finish()
        except KeyboardInterrupt:
            delivery.abandon()
    failed = delivery.failures.total()
    if not quiet:
        _tell(f"wrote {text.counted(delivery.sent - failed, 'record')} to {topic}")
    told = [problem] if problem else []
    if failed:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in delivery.failures.most_common())
        told.append(f"{text.counted(failed, 'record')} not written: {reasons}")
    if told:
        common.fail(*told)


class InputError(Exception):
    """What is read can't be records; the message says where."""


def _reader(line_format: str, key_separator: str | None) -> Reader:
    try:
        return reader(line_format, key_separator)
    except RecordError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


def _defaults(acks: Acks) -> dict[str, str]:
    return {
        "acks": acks.value,
        "enable.idempotence": str(acks is Acks.ALL).lower(),
        "message.max.bytes": str(RECORD_LIMIT_BYTES),
        "message.timeout.ms": "120000",
        "queue.buffering.max.kbytes": str(QUEUE_LIMIT_BYTES >> 10),
    }


def _record(read: Reader, line: Line) -> Record:
    try:
        return read(line.content)
    except RecordError as error:
        raise InputError(f"{line.place}: {error}") from None


def _completed(record: Record, key: str | None, headers: Headers, partition: int | None) -> Record:
    if key is None and not headers and partition is None:
        return record
    return replace(
        record,
        key=record.key if record.key is not None or key is None else key.encode(),
        headers=[*record.headers, *headers],
        partition=record.partition if partition is None else partition,
    )


def _lines(files: Sequence[Path], *, whole: bool) -> Iterator[Line]:
    for file in files:
        if file == Path("-"):
            if sys.stdin.isatty() and not whole:
                _tell("a line is a record; end with Ctrl-D")
            yield from _lines_of(sys.stdin.buffer, "standard input", whole=whole)
            continue
        try:
            with file.open("rb") as stream:
                yield from _lines_of(stream, str(file), whole=whole)
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}") from None


def _lines_of(stream: BinaryIO, name: str, *, whole: bool) -> Iterator[Line]:
    if whole:
        yield Line(name, stream.read(_LINE_LIMIT_BYTES + 1))
        return
    number = 0
    while line := stream.readline(_LINE_LIMIT_BYTES + 1):
        number += 1
        if len(line) > _LINE_LIMIT_BYTES:
            raise InputError(f"{name}:{number}: the line is longer than {_LINE_LIMIT_BYTES} bytes")
        yield Line(f"{name}:{number}", line.removesuffix(b"\n").removesuffix(b"\r"))


def _tell(line: str) -> None:
    typer.echo(line, err=True)
