"""The options of the source: those of Spark's Kafka source that mean the same, and where Diskless is. Pure."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from diskless_core.plugin.errors import nearest
from diskless_spark.source.decoding import Place

EARLIEST = -2
LATEST = -1

BACKEND_NOUNS = ("wal_object_store", "remote_storage")
MAX_TASK_BYTES = 64 << 20
MAX_TRIGGER_DELAY_MS = 15 * 60_000

_NAMES = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "minPartitions",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "diskless.config",
    "diskless.url",
    "diskless.snapshot",
    "diskless.maxTaskBytes",
    "diskless.skipDamaged",
)
_OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_OF_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class SourceOptionError(Exception):
    """An option cannot be used; the message says which one and why."""


class SnapshotKind(StrEnum):
    """Who says where records lie: a running broker, or the snapshots that it left in the bucket."""

    BROKER = "broker"
    BUCKET = "bucket"


class Missing(Enum):
    """What takes the place of the first record of some time, where no record is so late."""

    IS_AN_ERROR = "error"
    IS_THE_END = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which partitions are read: those of topics, of topics by a regular expression, or single ones. One is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    places: frozenset[Place] = frozenset()

    def names(self) -> tuple[str, ...]:
        """The topics that are named; none with a pattern."""
        return self.topics or tuple(sorted({place.topic for place in self.places}))

    def chooses(self, topic: str) -> bool:
        """Whether it names a topic, or its pattern matches the whole name."""
        names = self.names()
        return topic in names if names else re.fullmatch(self.pattern, topic) is not None

    def wants(self, place: Place) -> bool:
        """Whether a partition of a topic that was asked for belongs to it."""
        return not self.places or place in self.places


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """Where to begin or to end in each partition.

    Attributes:
        option: the name of the option that says so.
        default: an offset for partitions that are not named, None if all have to be.
        offsets: by partition; -2 is the earliest, -1 the latest.
        timestamps_ms: by partition; the first record of that time or later.
        timestamp_ms: the same for all.
    """

    option: str
    default: int | None = None
    offsets: Mapping[Place, int]
    timestamps_ms: Mapping[Place, int]
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options, checked. `settings` are those of the object store and the remote storage, keys in lower case."""

    subscription: Subscription
    starting: At
    ending: At
    starting_missing: Missing
    include_headers: bool
    min_partitions: int
    max_task_bytes: int
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    fail_on_data_loss: bool
    skip_damaged: bool
    config: str
    url: str
    snapshot: SnapshotKind
    settings: Mapping[str, str]


def parse(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Check the options of a query.

    Raises:
        SourceOptionError: one is unknown, bad, or of no use for this kind of query.
    """
    given = {key.lower(): str(value).strip() for key, value in options.items()}
    _check_names(given, is_stream=is_stream)
    read = _Read(given)
    snapshot = read.choice("diskless.snapshot", SnapshotKind, SnapshotKind.BROKER)
    if is_stream and snapshot is SnapshotKind.BUCKET:
        raise SourceOptionError("diskless.snapshot: a stream needs a broker, which knows what is new")
    least, most = read.positive("minOffsetsPerTrigger"), read.positive("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise SourceOptionError(f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, which is {most}")
    if least is None and read.has("maxTriggerDelay"):
        raise SourceOptionError("maxTriggerDelay: it has no meaning without minOffsetsPerTrigger")
    return SourceOptions(
        subscription=_subscription(read),
        starting=_at(read, "starting", LATEST if is_stream else EARLIEST, forbidden=None if is_stream else LATEST),
        ending=_at(read, "ending", LATEST, forbidden=EARLIEST),
        starting_missing=read.choice("startingOffsetsByTimestampStrategy", Missing, Missing.IS_AN_ERROR),
        include_headers=includes_headers(options),
        min_partitions=read.positive("minPartitions") or 1,
        max_task_bytes=read.positive("diskless.maxTaskBytes") or MAX_TASK_BYTES,
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=read.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        fail_on_data_loss=read.boolean("failOnDataLoss", default=True),
        skip_damaged=read.boolean("diskless.skipDamaged", default=False),
        config=read.text("diskless.config"),
        url=read.text("diskless.url").rstrip("/"),
        snapshot=snapshot,
        settings={key: value for key, value in given.items() if _is_setting(key)},
    )


def check(options: Mapping[str, str]) -> None:
    """Check the options of a query of which it is not known yet whether it is a stream.

    Raises:
        SourceOptionError: they can be used for neither kind; told is what the likelier one has against them.
    """
    given = {key.lower() for key in options}
    seems_stream = any(name.lower() in given for name in _OF_STREAMS)
    try:
        parse(options, is_stream=seems_stream)
    except SourceOptionError as error:
        try:
            parse(options, is_stream=not seems_stream)
        except SourceOptionError:
            raise error from None


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether rows have a column for headers.

    Raises:
        SourceOptionError: the option is neither true nor false.
    """
    given = {key.lower(): str(value).strip() for key, value in options.items()}
    return _Read(given).boolean("includeHeaders", default=False)


def _is_setting(key: str) -> bool:
    return key.partition(".")[0] in BACKEND_NOUNS


def _check_names(given: Mapping[str, str], *, is_stream: bool) -> None:
    known = {name.lower(): name for name in _NAMES}
    for key in given:
        if key.startswith("kafka."):
            raise SourceOptionError(f"{key}: no Kafka client takes part; this source reads the bucket")
        if key not in known and not _is_setting(key):
            near = nearest(key, known)
            hint = f"; did you mean {known[near]}?" if near else ""
            raise SourceOptionError(f"{key}: there is no such option{hint}")
    for name in _OF_BATCHES if is_stream else _OF_STREAMS:
        if name.lower() in given:
            kind = "stream" if is_stream else "batch query"
            raise SourceOptionError(f"{name}: it has no meaning for a {kind}")


class _Read:
    """Options by name, each as what it has to be."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        return self._given.get(name.lower(), "")

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def boolean(self, name: str, *, default: bool) -> bool:
        match self.text(name).lower():
            case "":
                return default
            case "true":
                return True
            case "false":
                return False
            case other:
                raise SourceOptionError(f"{name}: it has to be true or false, not {other!r}")

    def positive(self, name: str) -> int | None:
        if not self.has(name):
            return None
        number = self._integer(name, self.text(name))
        if number < 1:
            raise SourceOptionError(f"{name}: it has to be greater than 0, not {number}")
        return number

    def duration_ms(self, name: str, default: int) -> int:
        """A time as Spark's properties have it: 90s, 15m."""
        if not self.has(name):
            return default
        found = _DURATION.fullmatch(self.text(name).lower())
        if found is None or found[2] not in _UNITS_MS:
            raise SourceOptionError(f"{name}: it has to be a time such as 500ms, 90s or 15m, not {self.text(name)!r}")
        return int(found[1]) * _UNITS_MS[found[2]]

    def timestamp_ms(self, name: str) -> int | None:
        return _timestamp(name, self._integer(name, self.text(name))) if self.has(name) else None

    def choice(self, name: str, kind: Any, default: Any) -> Any:
        if not self.has(name):
            return default
        try:
            return kind(self.text(name).lower())
        except ValueError:
            values = " or ".join(one.value for one in kind)
            raise SourceOptionError(f"{name}: it has to be {values}, not {self.text(name)!r}") from None

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.text(name))
        except ValueError:
            raise SourceOptionError(f"{name}: {self.text(name)!r} is no JSON") from None

    def by_place(self, name: str) -> Mapping[Place, int]:
        """`{"topic": {"0": number}}`."""
        found = self.json(name)
        wrong = SourceOptionError(f'{name}: it has to be JSON of the form {{"topic": {{"0": 23}}}}')
        if not isinstance(found, dict):
            raise wrong
        places: dict[Place, int] = {}
        for topic, numbers in found.items():
            if not isinstance(numbers, dict):
                raise wrong
            for partition, number in numbers.items():
                if not partition.isdecimal() or not isinstance(number, int) or isinstance(number, bool):
                    raise wrong
                places[Place(topic, int(partition))] = number
        return places

    @staticmethod
    def _integer(name: str, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise SourceOptionError(f"{name}: it has to be a whole number, not {text!r}") from None


def _subscription(read: _Read) -> Subscription:
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if read.has(name)]
    if len(ways) != 1:
        there_are = f"there are {' and '.join(ways)}" if ways else "there is none"
        raise SourceOptionError(f"one of assign, subscribe and subscribePattern says what is read; {there_are}")
    text = read.text(ways[0])
    if not text:
        raise SourceOptionError(f"{ways[0]}: it is empty")
    match ways[0]:
        case "subscribe":
            return Subscription(topics=_topics(text))
        case "subscribePattern":
            return Subscription(pattern=_pattern(text))
        case _:
            return Subscription(places=_places(read.json("assign")))


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not topics:
        raise SourceOptionError("subscribe: it names no topic")
    return topics


def _pattern(text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except re.error as error:
        raise SourceOptionError(f"subscribePattern: {text!r} is no regular expression: {error}") from None
    except FutureWarning as ambiguous:
        raise SourceOptionError(
            f"subscribePattern: {text!r} does not mean the same everywhere: {ambiguous}; put a backslash before it"
        ) from None
    return text


def _places(found: Any) -> frozenset[Place]:
    wrong = SourceOptionError('assign: it has to be JSON of the form {"topic": [0, 1]}')
    if not isinstance(found, dict) or not found:
        raise wrong
    places: set[Place] = set()
    for topic, partitions in found.items():
        if not _is_list_of_partitions(partitions):
            raise wrong
        places.update(Place(topic, partition) for partition in partitions)
    return frozenset(places)


def _is_list_of_partitions(found: Any) -> bool:
    return (
        isinstance(found, list)
        and bool(found)
        and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in found)
    )


def _at(read: _Read, side: str, default: int, *, forbidden: int | None) -> At:
    """By time for all, by time for each, by offset: of several, the first one holds, as for Spark's Kafka source."""
    name = f"{side}Timestamp"
    timestamp_ms = read.timestamp_ms(name)
    if timestamp_ms is not None:
        return At(option=name, timestamp_ms=timestamp_ms, offsets={}, timestamps_ms={})
    name = f"{side}OffsetsByTimestamp"
    if read.has(name):
        times = {place: _timestamp(name, value) for place, value in read.by_place(name).items()}
        return At(option=name, timestamps_ms=times, offsets={})
    name = f"{side}Offsets"
    words = {"earliest": EARLIEST, "latest": LATEST}
    text = read.text(name).lower()
    offset = words.get(text, default)
    if text and text not in words:
        return At(option=name, offsets=_offsets(name, read.by_place(name), forbidden), timestamps_ms={})
    _forbid(name, [offset], forbidden)
    return At(option=name, default=offset, offsets={}, timestamps_ms={})


def _offsets(name: str, offsets: Mapping[Place, int], forbidden: int | None) -> Mapping[Place, int]:
    for place, offset in offsets.items():
        if offset < EARLIEST:
            raise SourceOptionError(f"{name}: {offset} of {place.name} is no offset")
    _forbid(name, list(offsets.values()), forbidden)
    return offsets


def _forbid(name: str, offsets: Sequence[int], forbidden: int | None) -> None:
    if forbidden in offsets:
        where = "begin at the latest" if forbidden == LATEST else "end at the earliest"
        raise SourceOptionError(f"{name}: a batch query cannot {where} offset ({forbidden})")


def _timestamp(name: str, value: int) -> int:
    if value < 0:
        raise SourceOptionError(f"{name}: {value} is no time: it has to be milliseconds since the epoch")
    return value
