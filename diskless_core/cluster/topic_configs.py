"""The settings that a topic can have, what values they take, and the rules that follow from them. Pure.

They are Apache Kafka's, with its names, defaults and limits. Some have nothing to change here. They are kept and shown
all the same, so that scripts made for Kafka work; the broker's log says so when one of them is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.cluster import config_values
from diskless_core.cluster.config_model import ConfigType
from diskless_core.cluster.config_values import (
    MAX_INT,
    MAX_LONG,
    InvalidTopicConfigError,
    ValueCheck,
    boolean,
    decimal,
    elements,
    number,
    one_of,
    replicas,
)
from diskless_core.diskless.commands import TimestampType
from diskless_core.produce.validation import TopicRules
from diskless_core.protocol.compression import CODECS, LEVELS, Codec

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
COPY_DISABLE = "remote.log.copy.disable"
STORAGE_ENABLE = "remote.storage.enable"
CLEANUP_POLICY = "cleanup.policy"
COMPRESSION_TYPE = "compression.type"
MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_COMPACTION_LAG = "max.compaction.lag.ms"
AS_PRODUCED = "producer"
"""The `compression.type` of a topic whose batches stay as they come."""

FOLLOWS_RETENTION = -2
"""What `local.retention.*` are where retention alone counts."""

_SHOWN_CHARS = 200
"""Of a value that is refused: the client knows the rest."""

_POLICIES = ("compact", "delete")
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


class BrokerSynonym(NamedTuple):
    """A broker's setting that a topic without one of its own follows, in units that are `unit` times the topic's."""

    name: str
    unit: int = 1

    def in_topic_unit(self, value: str) -> str:
        """The broker's value as the topic would write it; negative numbers have a meaning of their own."""
        return value if self.unit == 1 or int(value) < 0 else str(int(value) * self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One setting.

    Attributes:
        check: raises InvalidTopicConfigError for a value that it does not take.
        follows: the broker's settings that hold where the topic has none, the first that is set. None of them has
            to be set: the last one then has a default.
        default: what holds where neither the topic nor the broker says anything.
        has_effect: whether anything here goes by it.
    """

    type: ConfigType
    help: str
    check: ValueCheck
    follows: Sequence[BrokerSynonym] = ()
    default: str = ""
    has_effect: bool = True


def _check_cleanup_policy(value: str) -> None:
    policies = elements(value)
    for policy in policies:
        if policy not in _POLICIES:
            raise InvalidTopicConfigError(f"String must be one of: {', '.join(_POLICIES)}")
    if "compact" in policies:
        raise InvalidTopicConfigError("only 'delete', or nothing, is supported: there are no compacted topics")


def _level(codec: str) -> ValueCheck:
    levels = LEVELS[CODECS[codec]]
    return number(levels.lowest, levels.highest, or_else=levels.or_else)


CONFIGS: Mapping[str, TopicConfig] = {
    CLEANUP_POLICY: TopicConfig(
        type=ConfigType.LIST,
        help="What becomes of old records: delete removes them by retention.ms and retention.bytes; empty, they stay "
        "until someone deletes them. There are no compacted topics: compact is refused.",
        check=ValueCheck(_check_cleanup_policy, "delete, or empty"),
        follows=(BrokerSynonym("log.cleanup.policy"),),
    ),
    "compression.gzip.level": TopicConfig(
        type=ConfigType.INT,
        help="Level at which batches are compressed where compression.type is gzip. 1 is the fastest, 9 the smallest, "
        "and -1 what zlib takes for a good mean.",
        check=_level("gzip"),
        follows=(BrokerSynonym("compression.gzip.level"),),
    ),
    "compression.lz4.level": TopicConfig(
        type=ConfigType.INT,
        help="Level at which batches are compressed where compression.type is lz4. 9 is the fastest; of the others, "
        "the higher the smaller.",
        check=_level("lz4"),
        follows=(BrokerSynonym("compression.lz4.level"),),
    ),
    "compression.zstd.level": TopicConfig(
        type=ConfigType.INT,
        help="Level at which batches are compressed where compression.type is zstd. The higher, the smaller and "
        "slower; negative ones are fast.",
        check=_level("zstd"),
        follows=(BrokerSynonym("compression.zstd.level"),),
    ),
    COMPRESSION_TYPE: TopicConfig(
        type=ConfigType.STRING,
        help="The codec that batches are stored with. Those that come with another one, or none, are compressed "
        "again; uncompressed stores them without one, and producer as they come, which costs the broker nothing.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", AS_PRODUCED),
        follows=(BrokerSynonym("compression.type"),),
    ),
    "delete.retention.ms": TopicConfig(
        type=ConfigType.LONG,
        help="How long compaction would keep the markers of deleted keys, in milliseconds. There are no compacted "
        "topics.",
        check=number(0, MAX_LONG),
        follows=(BrokerSynonym("log.cleaner.delete.retention.ms"),),
        default="86400000",
        has_effect=False,
    ),
    "file.delete.delay.ms": TopicConfig(
        type=ConfigType.LONG,
        help="How long a file that is not needed any more would stay, in milliseconds. Objects stay for "
        "diskless.file.delete.delay.ms.",
        check=number(0, MAX_LONG),
        follows=(BrokerSynonym("log.segment.delete.delay.ms"),),
        default="60000",
        has_effect=False,
    ),
    "flush.messages": TopicConfig(
        type=ConfigType.LONG,
        help="After how many records a file would be forced to its disk. Every record is in the object store when it "
        "is acknowledged.",
        check=number(1, MAX_LONG),
        follows=(BrokerSynonym("log.flush.interval.messages"),),
        default=str(MAX_LONG),
        has_effect=False,
    ),
    "flush.ms": TopicConfig(
        type=ConfigType.LONG,
        help="After what time a file would be forced to its disk, in milliseconds. Every record is in the object "
        "store when it is acknowledged.",
        check=number(0, MAX_LONG),
        follows=(
            BrokerSynonym("log.flush.interval.ms"),
            BrokerSynonym("log.flush.scheduler.interval.ms"),
        ),
        has_effect=False,
    ),
    "follower.replication.throttled.replicas": TopicConfig(
        type=ConfigType.LIST,
        help="Replicas whose fetching the rates of brokers would limit. Brokers do not copy records from each other.",
        check=replicas,
        has_effect=False,
    ),
    "index.interval.bytes": TopicConfig(
        type=ConfigType.INT,
        help="Distance between two entries of a segment's offset index, in bytes.",
        check=number(0, MAX_INT),
        follows=(BrokerSynonym("log.index.interval.bytes"),),
    ),
    "leader.replication.throttled.replicas": TopicConfig(
        type=ConfigType.LIST,
        help="Replicas whose being fetched the rates of brokers would limit. Brokers do not copy records from each "
        "other.",
        check=replicas,
        has_effect=False,
    ),
    "local.retention.bytes": TopicConfig(
        type=ConfigType.LONG,
        help="Size of a partition's part in WAL objects above which its records go into segments, in bytes, also if "
        "that makes a segment that is not full; -2 is retention.bytes, that is, full ones only, and -1 no limit.",
        check=number(FOLLOWS_RETENTION, MAX_LONG),
        follows=(BrokerSynonym("log.local.retention.bytes"),),
    ),
    "local.retention.ms": TopicConfig(
        type=ConfigType.LONG,
        help="Age of records from which on they are in segments, in milliseconds, also if that makes a segment that "
        "is not full; -2 is retention.ms, that is, full ones only, and -1 no limit.",
        check=number(FOLLOWS_RETENTION, MAX_LONG),
        follows=(BrokerSynonym("log.local.retention.ms"),),
    ),
    MAX_COMPACTION_LAG: TopicConfig(
        type=ConfigType.LONG,
        help="Longest time that a record would stay uncompacted, in milliseconds. There are no compacted topics.",
        check=number(1, MAX_LONG),
        follows=(BrokerSynonym("log.cleaner.max.compaction.lag.ms"),),
        default=str(MAX_LONG),
        has_effect=False,
    ),
    "max.message.bytes": TopicConfig(
        type=ConfigType.INT,
        help="Size of the largest record batch accepted, in bytes: as it comes, and as it is stored if it is "
        "compressed again.",
        check=number(0, MAX_INT),
        follows=(BrokerSynonym("message.max.bytes"),),
    ),
    "message.timestamp.after.max.ms": TopicConfig(
        type=ConfigType.LONG,
        help="How far a CreateTime may lie in the future when the broker gets it, in milliseconds.",
        check=number(0, MAX_LONG),
        follows=(BrokerSynonym("log.message.timestamp.after.max.ms"),),
    ),
    "message.timestamp.before.max.ms": TopicConfig(
        type=ConfigType.LONG,
        help="How far a CreateTime may lie in the past when the broker gets it, in milliseconds.",
        check=number(0, MAX_LONG),
        follows=(BrokerSynonym("log.message.timestamp.before.max.ms"),),
    ),
    "message.timestamp.type": TopicConfig(
        type=ConfigType.STRING,
        help="Whether a record has the producer's timestamp (CreateTime) or that of its commit (LogAppendTime).",
        check=one_of(*_TIMESTAMP_TYPES),
        follows=(BrokerSynonym("log.message.timestamp.type"),),
    ),
    "min.cleanable.dirty.ratio": TopicConfig(
        type=ConfigType.DOUBLE,
        help="Which part of a log would have to be uncompacted before it is compacted. There are no compacted topics.",
        check=decimal(0, 1),
        follows=(BrokerSynonym("log.cleaner.min.cleanable.ratio"),),
        default="0.5",
        has_effect=False,
    ),
    MIN_COMPACTION_LAG: TopicConfig(
        type=ConfigType.LONG,
        help="Shortest time that a record would stay uncompacted, in milliseconds. There are no compacted topics.",
        check=number(0, MAX_LONG),
        follows=(BrokerSynonym("log.cleaner.min.compaction.lag.ms"),),
        default="0",
        has_effect=False,
    ),
    "min.insync.replicas": TopicConfig(
        type=ConfigType.INT,
        help="How many replicas would have to have a record. How often data is stored is up to the object store.",
        check=number(1, MAX_INT),
        follows=(BrokerSynonym("min.insync.replicas"),),
        has_effect=False,
    ),
    "preallocate": TopicConfig(
        type=ConfigType.BOOLEAN,
        help="Whether a new file would take its full size at once. Records are not in local files.",
        check=boolean,
        follows=(BrokerSynonym("log.preallocate"),),
        default="false",
        has_effect=False,
    ),
    COPY_DISABLE: TopicConfig(
        type=ConfigType.BOOLEAN,
        help="Whether no more segments are made without being asked for, although remote.storage.enable is true.",
        check=boolean,
        default="false",
    ),
    "remote.log.delete.on.disable": TopicConfig(
        type=ConfigType.BOOLEAN,
        help="Whether segments would go when remote.storage.enable is taken back. It can't be: they hold the only "
        "copy of their records.",
        check=boolean,
        default="false",
        has_effect=False,
    ),
    STORAGE_ENABLE: TopicConfig(
        type=ConfigType.BOOLEAN,
        help="Whether older records go into segments in remote storage by and by. It can't be taken back.",
        check=boolean,
        default="false",
    ),
    "retention.bytes": TopicConfig(
        type=ConfigType.LONG,
        help="Size of a partition above which its oldest batches go, in bytes; -1 is no limit.",
        check=number(-MAX_LONG - 1, MAX_LONG),
        follows=(BrokerSynonym("log.retention.bytes"),),
    ),
    "retention.ms": TopicConfig(
        type=ConfigType.LONG,
        help="How long records are kept, in milliseconds; -1 is for ever.",
        check=number(-1, MAX_LONG),
        follows=(
            BrokerSynonym("log.retention.ms"),
            BrokerSynonym("log.retention.minutes", _MINUTE_MS),
            BrokerSynonym("log.retention.hours", _HOUR_MS),
        ),
    ),
    "segment.bytes": TopicConfig(
        type=ConfigType.INT,
        help="Size of the segments that compaction makes, in bytes.",
        check=number(1024 * 1024, MAX_INT),
        follows=(BrokerSynonym("log.segment.bytes"),),
    ),
    "segment.index.bytes": TopicConfig(
        type=ConfigType.INT,
        help="Size of the largest index of a segment. Indexes are as large as their segments need.",
        check=number(4, MAX_INT),
        follows=(BrokerSynonym("log.index.size.max.bytes"),),
        default="10485760",
        has_effect=False,
    ),
    "segment.jitter.ms": TopicConfig(
        type=ConfigType.LONG,
        help="By how much segments would begin apart from each other, in milliseconds. They are made when there is "
        "something to put in them.",
        check=number(0, MAX_LONG),
        follows=(
            BrokerSynonym("log.roll.jitter.ms"),
            BrokerSynonym("log.roll.jitter.hours", _HOUR_MS),
        ),
        has_effect=False,
    ),
    "segment.ms": TopicConfig(
        type=ConfigType.LONG,
        help="Longest time that one segment made by compaction covers, in milliseconds.",
        check=number(1, MAX_LONG),
        follows=(BrokerSynonym("log.roll.ms"), BrokerSynonym("log.roll.hours", _HOUR_MS)),
    ),
    "unclean.leader.election.enable": TopicConfig(
        type=ConfigType.BOOLEAN,
        help="Whether a replica that lacks records could lead a partition. Partitions have no replicas.",
        check=boolean,
        follows=(BrokerSynonym("unclean.leader.election.enable"),),
        default="false",
        has_effect=False,
    ),
}
"""All settings of a topic by name."""

FOLLOWED: Mapping[str, TopicConfig] = {config.follows[0].name: config for config in CONFIGS.values() if config.follows}
"""The settings of a broker that are its topics' defaults: the finest one, where a topic follows several."""


def unknown(names: Sequence[str]) -> str:
    """What a client is told that sets what is not in `CONFIGS`."""
    return f"Unknown topic config name: {', '.join(names)}"


def without_effect(names: Iterable[str]) -> Sequence[str]:
    """Those of a topic's settings that change nothing here."""
    return [name for name in names if name in CONFIGS and not CONFIGS[name].has_effect]


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings, if all of them can be had.

    Raises:
        InvalidTopicConfigError: the first that cannot, and why.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        if name not in CONFIGS:
            raise InvalidTopicConfigError(unknown([name]))
        if value is None:
            raise InvalidTopicConfigError(f"Null value not supported for topic configs: {name}")
        checked[name] = check_value(name, CONFIGS[name], value)
    return checked


def check_value(name: str, config: TopicConfig, value: str) -> str:
    """A value that `config` takes, under whatever name the client knows it, as it is kept: without needless spaces.

    Raises:
        InvalidTopicConfigError: it does not take it.
    """
    if len(value) > config_values.MAX_VALUE_CHARS:
        raise InvalidTopicConfigError(
            f"A value of {len(value)} characters for configuration {name} is too long: "
            f"it can have {config_values.MAX_VALUE_CHARS}"
        )
    try:
        config.check(value)
    except InvalidTopicConfigError as error:
        shown = value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}..."
        raise InvalidTopicConfigError(f"Invalid value {shown} for configuration {name}: {error}") from None
    match config.type:
        case ConfigType.INT | ConfigType.LONG:
            return str(int(value))
        case ConfigType.BOOLEAN:
            return str(config_values.value_of_boolean(value)).lower()
        case ConfigType.DOUBLE:
            return config_values.double_as_text(float(value))
        case ConfigType.LIST:
            return ",".join(elements(value))
    return value.strip()


def check_together(configs: Mapping[str, str]) -> None:
    """Check that settings can be had together; those of tiered storage are checked elsewhere.

    Args:
        configs: all settings of a topic, defaults included.

    Raises:
        InvalidTopicConfigError: they cannot.
    """
    lowest, highest = int(configs[MIN_COMPACTION_LAG]), int(configs[MAX_COMPACTION_LAG])
    if lowest > highest:
        raise InvalidTopicConfigError(
            f"conflict topic config setting {MIN_COMPACTION_LAG} ({lowest}) > {MAX_COMPACTION_LAG} ({highest})"
        )


def rules(configs: Mapping[str, str]) -> TopicRules:
    """What a topic's batches are judged by, from all its settings, defaults included."""
    return TopicRules(
        max_message_bytes=int(configs["max.message.bytes"]),
        timestamp_type=_TIMESTAMP_TYPES[configs["message.timestamp.type"]],
        timestamp_before_max_ms=int(configs["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(configs["message.timestamp.after.max.ms"]),
        stored_with=stored_with(configs),
    )


def stored_with(configs: Mapping[str, str]) -> Codec | None:
    """The codec that a topic's batches have to have; None where they stay as they come."""
    name = configs[COMPRESSION_TYPE]
    if name == AS_PRODUCED:
        return None
    level = configs.get(f"compression.{name}.level")
    return Codec(CODECS[name], int(level) if level is not None else None)


def removes_old_records(configs: Mapping[str, str]) -> bool:
    """Whether retention removes a topic's records."""
    return "delete" in elements(configs[CLEANUP_POLICY])
