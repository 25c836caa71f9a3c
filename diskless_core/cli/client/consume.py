"""`diskless consume`: writes records of a topic of any Kafka to standard output."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, BinaryIO

import typer
from confluent_kafka import Consumer, Message, TopicPartition

from diskless_core.cli.client.cluster import Cluster, ClusterError, ConnectionErrors, Partition, made, no_partition
from diskless_core.cli.client.options import (
    BootstrapOption,
    CommandConfigOption,
    CommandPropertyOption,
    client_properties,
    complete_group,
    complete_topic,
    ends_on_errors,
    sigterm_as_interrupt,
)
from diskless_core.cli.client.past_damage import PastDamage, Reached, ReadRecord, Skipped
from diskless_core.cli.client.positions import (
    GRAMMAR,
    Beginning,
    End,
    Offset,
    Position,
    PositionError,
    Time,
    parse_position,
)
from diskless_core.cli.client.records import NAMED_FORMATS, RecordError, Writer, writer
from diskless_core.clock import SystemClock
from diskless_core.plugin.kafka_client import END_OF_PARTITION

_POLL_S = 0.2
_BATCH = 1_000
_NO_GROUP = "diskless-consume"
_PLAINTEXT = "PLAINTEXT"

app = typer.Typer(add_completion=False)


class Isolation(StrEnum):
    """Which records of transactions are read."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class Progress:
    """What is left to read of the partitions that this consumer has.

    Args:
        stops: the first offset of each partition that is not read any more, and none of other partitions is; None reads
            without end.
        limit: how many records are read at most; None is any number.
    """

    def __init__(self, stops: Mapping[int, int] | None, limit: int | None) -> None:
        self._stops = stops
        self._left = limit
        self._open: set[int] | None = None

    def assign(self, partitions: Collection[int]) -> None:
        """These are read from now on."""
        self._open = {*(self._open or ()), *partitions}

    def revoke(self, partitions: Collection[int]) -> None:
        """These may be another consumer's from now on; without any, the next assignment is awaited."""
        self._open = (self._open or set()) - set(partitions) or None

    def take(self, partition: int, offset: int) -> bool:
        """Whether a record that has arrived is to be written; it is read then."""
        wanted = (
            self._left != 0
            and self.is_open(partition)
            and (self._stops is None or offset < self._stops.get(partition, 0))
        )
        if wanted and self._left is not None:
            self._left -= 1
        self.reach(partition, offset + 1)
        return wanted

    def reach(self, partition: int, offset: int) -> None:
        """Nothing below an offset is left to read."""
        if self._stops is not None and self._open is not None and offset >= self._stops.get(partition, 0):
            self._open.discard(partition)

    def is_open(self, partition: int) -> bool:
        """Whether records of a partition are still to be read."""
        return self._open is None or partition in self._open

    @property
    def is_over(self) -> bool:
        return self._left == 0 or (self._stops is not None and self._open is not None and not self._open)


@app.command()
@ends_on_errors()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where from.", autocompletion=complete_topic)],
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="POSITION", help=f"The first record, inclusive: {GRAMMAR}. With --group: where it is new."
        ),
    ] = "beginning",
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            "-u",
            metavar="POSITION",
            help="The last record, exclusive, as --from. Follows the topic without.",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="End after so many records.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this one; can be given many times."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Read as a member of this group, and commit what was written.",
            autocompletion=complete_group,
        ),
    ] = None,
    line_format: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help=f"{', '.join(NAMED_FORMATS)}, or a format such as '%p %o %k %v'."
        ),
    ] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Write keys too, and this before the value."),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation-level", help="Whether records of unfinished transactions are read.")
    ] = Isolation.COMMITTED,
    skip_damaged: Annotated[
        bool,
        typer.Option(
            "--skip-damaged",
            help="Skip batches that cannot be read, and name each on standard error. Without a group, TLS and SASL.",
        ),
    ] = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Write a topic's records to standard output, from its beginning, and follow it until Ctrl-C.

    Formats are text (the value, one a line), json (one object a line), base64, hex, or any text with %t topic, %p
    partition, %o offset, %k key, %v value, %h headers, %T timestamp, %D date, %K and %S lengths of key and value.
    """
    write = _writer("json" if as_json else line_format, key_separator)
    first, last = _position(start, "--from"), _position(until, "--until") if until is not None else None
    if group is not None and partition:
        raise typer.BadParameter("a group shares all partitions out: give either --group or --partition")
    if group is not None and not isinstance(first, Beginning | End):
        raise typer.BadParameter("a new group begins at the beginning or the end: `diskless groups reset` sets it")
    properties = client_properties(bootstrap_server, command_config, command_property)
    if skip_damaged and group is not None:
        raise typer.BadParameter("--skip-damaged reads without a group: `diskless groups reset` sets a group's offsets")
    if skip_damaged and properties.get("security.protocol", _PLAINTEXT).upper() != _PLAINTEXT:
        raise typer.BadParameter(f"--skip-damaged reads from a listener without TLS and SASL only: {_PLAINTEXT}")
    cluster = Cluster(properties)
    partitions = _chosen(cluster, topic, partition)
    committed = isolation is Isolation.COMMITTED
    stops = _offsets(cluster, partitions, last, committed=committed) if last is not None else None
    progress = Progress(stops, count)
    if skip_damaged:
        offsets = {place.number: at for place, at in cluster.offsets_at(partitions, first, committed=committed).items()}
        with sigterm_as_interrupt(), suppress(KeyboardInterrupt):
            reader = PastDamage(
                topic=topic,
                leaders=partial(cluster.leaders, topic),
                end_of=lambda number: cluster.offsets_at([Partition(topic, number)], End())[Partition(topic, number)],
                committed=committed,
            )
            _copy_past_damage(reader, offsets, progress, write, sys.stdout.buffer)
        return
    errors = ConnectionErrors(cluster.bootstrap, _tell)
    defaults = _defaults(group, isolation, first)
    consumer: Consumer = made(Consumer, {**defaults, **properties}, error_cb=errors.add)
    with sigterm_as_interrupt():
        try:
            if group is not None:
                _subscribe(consumer, topic, progress)
            else:
                starts = cluster.offsets_at(partitions, first, committed=committed)
                _assign(consumer, topic, {place.number: offset for place, offset in starts.items()}, progress)
            with suppress(KeyboardInterrupt):
                _copy(consumer, progress, write, sys.stdout.buffer, store=group is not None)
        finally:
            consumer.close()


def _defaults(group: str | None, isolation: Isolation, first: Position) -> dict[str, str]:
    return {
        "group.id": group or _NO_GROUP,
        "enable.auto.commit": str(group is not None).lower(),
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "latest" if isinstance(first, End) else "earliest",
        "isolation.level": isolation.value,
        "queued.max.messages.kbytes": "65536",
    }


def _writer(line_format: str, key_separator: str | None) -> Writer:
    try:
        return writer(line_format, key_separator)
    except RecordError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


def _position(written: str, option: str) -> Position:
    now_ms = SystemClock().now_ms()
    try:
        position = parse_position(written, now_ms)
    except PositionError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if isinstance(position, Time) and position.time_ms > now_ms:
        raise typer.BadParameter(f"{written} is in the future", param_hint=option)
    return position


def _chosen(cluster: Cluster, topic: str, wanted: Collection[int] | None) -> list[Partition]:
    there = cluster.topic(topic).all_partitions()
    if not wanted:
        return there
    for number in wanted:
        if Partition(topic, number) not in there:
            raise no_partition(topic, number, len(there))
    return [Partition(topic, number) for number in sorted(set(wanted))]


def _offsets(
    cluster: Cluster, partitions: Collection[Partition], position: Position, *, committed: bool
) -> dict[int, int]:
    """Where to stop: an offset may lie behind the end, for it may come to be."""
    if isinstance(position, Offset):
        return {number: position.offset for _, number in partitions}
    found = cluster.offsets_at(partitions, position, committed=committed)
    return {place.number: offset for place, offset in found.items()}


def _assign(consumer: Consumer, topic: str, starts: Mapping[int, int], progress: Progress) -> None:
    progress.assign(starts)
    for number, offset in starts.items():
        progress.reach(number, offset)
    consumer.assign([TopicPartition(topic, number, offset) for number, offset in starts.items()])


def _subscribe(consumer: Consumer, topic: str, progress: Progress) -> None:
    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        progress.assign([one.partition for one in partitions])

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        progress.revoke([one.partition for one in partitions])

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)


def _copy(consumer: Consumer, progress: Progress, write: Writer, out: BinaryIO, *, store: bool) -> None:
    while not progress.is_over:
        first = consumer.poll(_POLL_S)
        if first is None:
            _end_without_reader(out)
            continue
        read: dict[int, Message] = {}
        for message in [first, *consumer.consume(_BATCH, 0)]:
            if message.error() is not None:
                _take_error(message, progress)
            elif progress.take(_number(message.partition()), _number(message.offset())):
                out.write(write(message))
                read[_number(message.partition())] = message
        if read:
            out.flush()
        if store:
            for message in read.values():
                consumer.store_offsets(message)


def _copy_past_damage(
    reader: PastDamage, starts: Mapping[int, int], progress: Progress, write: Writer, out: BinaryIO
) -> None:
    progress.assign(starts)
    for partition, offset in starts.items():
        progress.reach(partition, offset)
    for one in reader.read(starts, progress.is_open):
        match one:
            case Reached():
                progress.reach(one.partition, one.offset)
                out.flush()
                _end_without_reader(out)
            case Skipped() if progress.is_open(one.partition):
                _tell(
                    f"skipped {reader.topic}-{one.partition}, offsets {one.first_offset} to {one.last_offset}: "
                    f"{one.problem}"
                )
            case ReadRecord():
                if progress.take(one.partition(), one.offset()):
                    out.write(write(one))
        if progress.is_over:
            return


def _end_without_reader(out: BinaryIO) -> None:
    """Raise BrokenPipeError when the reader of a pipe is gone: a quiet topic would never find out by writing."""
    with suppress(io.UnsupportedOperation):
        waiting = select.poll()
        waiting.register(out.fileno(), 0)
        if any(event & select.POLLERR for _, event in waiting.poll(0)):
            raise BrokenPipeError


def _take_error(message: Message, progress: Progress) -> None:
    error = message.error()
    if error is None:
        return
    if error.code() == END_OF_PARTITION:
        progress.reach(_number(message.partition()), _number(message.offset()))
    elif not error.retriable():
        raise ClusterError(error.str())


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1


def _tell(line: str) -> None:
    typer.echo(line, err=True)
