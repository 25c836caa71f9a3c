"""The settings that a topic can have, what values they take, and the rules that follow from them. Pure.

Apache Kafka's names. What has no meaning here is refused with the reason instead of being ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.cluster.config_model import ConfigType
from diskless_core.diskless.commands import TimestampType
from diskless_core.produce.validation import TopicRules

MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
COPY_DISABLE = "remote.log.copy.disable"
STORAGE_ENABLE = "remote.storage.enable"
FOLLOWS_RETENTION = -2
"""What `local.retention.*` are where retention alone counts."""

_NUMBER = re.compile(r"\s*[+-]?\d+\s*")
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


class InvalidTopicConfigError(ValueError):
    """A setting is unknown, or its value is not one that it takes. The message is meant for the client."""


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
        default: what holds where the broker has no setting for it.
    """

    type: ConfigType
    help: str
    check: Callable[[str], None]
    follows: Sequence[BrokerSynonym] = ()
    default: str = ""


def number(lowest: int, highest: int) -> Callable[[str], None]:
    """The check for whole numbers from `lowest` to `highest`, which says what type it is: Kafka's INT or LONG."""
    kind = "INT" if highest == MAX_INT else "LONG"

    def check(value: str) -> None:
        if not _NUMBER.fullmatch(value) or int(value) > highest:
            raise InvalidTopicConfigError(f"Not a number of type {kind}")
        if int(value) < lowest:
            raise InvalidTopicConfigError(f"Value must be at least {lowest}")

    return check


def _one_of(*values: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in values:
            raise InvalidTopicConfigError(f"String must be one of: {', '.join(values)}")

    return check


def _boolean(value: str) -> None:
    if value.strip().lower() not in ("true", "false"):
        raise InvalidTopicConfigError("Expected value to be either true or false")


def _only(wanted: str, reason: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value != wanted:
            raise InvalidTopicConfigError(f"only {wanted!r} is supported, for {reason}")

    return check


CONFIGS: Mapping[str, TopicConfig] = {
    "cleanup.policy": TopicConfig(
        type=ConfigType.LIST,
        help="What becomes of old records. They can only be deleted; there are no compacted topics.",
        check=_only("delete", "there are no compacted topics"),
        default="delete",
    ),
    "compression.type": TopicConfig(
        type=ConfigType.STRING,
        help="How batches are stored: always as the producer compressed them.",
        check=_only("producer", "batches are stored as the producer compressed them"),
        default="producer",
    ),
    "index.interval.bytes": TopicConfig(
        type=ConfigType.INT,
        help="Distance between two entries of a segment's offset index, in bytes.",
        check=number(0, MAX_INT),
        follows=(BrokerSynonym("log.index.interval.bytes"),),
    ),
    "local.retention.bytes": TopicConfig(
        type=ConfigType.LONG,
        help="Size of a partition's part in WAL objects above which its records go into segments, in bytes, also if "
        "that makes a segment that is not full; -2 is retention.bytes, that is, full ones only, and -1 no limit.",
        check=number(FOLLOWS_RETENTION, _MAX_LONG),
        follows=(BrokerSynonym("log.local.retention.bytes"),),
    ),
    "local.retention.ms": TopicConfig(
        type=ConfigType.LONG,
        help="Age of records from which on they are in segments, in milliseconds, also if that makes a segment that is "
        "not full; -2 is retention.ms, that is, full ones only, and -1 no limit.",
        check=number(FOLLOWS_RETENTION, _MAX_LONG),
        follows=(BrokerSynonym("log.local.retention.ms"),),
    ),
    "max.message.bytes": TopicConfig(
        type=ConfigType.INT,
        help="Size of the largest record batch accepted, in bytes, compressed as sent.",
        check=number(0, MAX_INT),
        follows=(BrokerSynonym("message.max.bytes"),),
    ),
    "message.timestamp.after.max.ms": TopicConfig(
        type=ConfigType.LONG,
        help="How far a CreateTime may lie in the future when the broker gets it, in milliseconds.",
        check=number(0, _MAX_LONG),
        follows=(BrokerSynonym("log.message.timestamp.after.max.ms"),),
    ),
    "message.timestamp.before.max.ms": TopicConfig(
        type=ConfigType.LONG,
        help="How far a CreateTime may lie in the past when the broker gets it, in milliseconds.",
        check=number(0, _MAX_LONG),
        follows=(BrokerSynonym("log.message.timestamp.before.max.ms"),),
    ),
    "message.timestamp.type": TopicConfig(
        type=ConfigType.STRING,
        help="Whether a record has the producer's timestamp (CreateTime) or that of its commit (LogAppendTime).",
        check=_one_of(*_TIMESTAMP_TYPES),
        follows=(BrokerSynonym("log.message.timestamp.type"),),
    ),
    "min.insync.replicas": TopicConfig(
        type=ConfigType.INT,
        help="Kept and shown, without an effect: how often data is stored is up to the object store.",
        check=number(1, MAX_INT),
        follows=(BrokerSynonym("min.insync.replicas"),),
    ),
    COPY_DISABLE: TopicConfig(
        type=ConfigType.BOOLEAN,
        help="Whether no more segments are made without being asked for, although remote.storage.enable is true.",
        check=_boolean,
        default="false",
    ),
    STORAGE_ENABLE: TopicConfig(
        type=ConfigType.BOOLEAN,
        help="Whether older records go into segments in remote storage by and by. It can't be taken back.",
        check=_boolean,
        default="false",
    ),
    "retention.bytes": TopicConfig(
        type=ConfigType.LONG,
        help="Size of a partition above which its oldest batches go, in bytes; -1 is no limit.",
        check=number(-1, _MAX_LONG),
        follows=(BrokerSynonym("log.retention.bytes"),),
    ),
    "retention.ms": TopicConfig(
        type=ConfigType.LONG,
        help="How long records are kept, in milliseconds; -1 is for ever.",
        check=number(-1, _MAX_LONG),
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
    "segment.ms": TopicConfig(
        type=ConfigType.LONG,
        help="Longest time that one segment made by compaction covers, in milliseconds.",
        check=number(1, _MAX_LONG),
        follows=(BrokerSynonym("log.roll.ms"), BrokerSynonym("log.roll.hours", _HOUR_MS)),
    ),
}
"""All settings of a topic by name."""

FOLLOWED: Mapping[str, TopicConfig] = {config.follows[0].name: config for config in CONFIGS.values() if config.follows}
"""The settings of a broker that are its topics' defaults: the finest one, where a topic follows several."""


ONLY_IN_KAFKA = frozenset(
    {
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "remote.log.delete.on.disable",
        "segment.index.bytes",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    }
)
"""Apache Kafka's settings of topics that mean nothing here: refused, so that nobody relies on them."""


def refusal_of(names: Sequence[str]) -> str:
    """What a client is told that sets what is not in `CONFIGS`."""
    unsupported = [name for name in names if name in ONLY_IN_KAFKA]
    if unsupported:
        return f"Topic config not supported, because it would have no effect: {', '.join(unsupported)}"
    return f"Unknown topic config name: {', '.join(names)}"


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings, if all of them can be had.

    Raises:
        InvalidTopicConfigError: the first that cannot, and why.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        if name not in CONFIGS:
            raise InvalidTopicConfigError(refusal_of([name]))
        if value is None:
            raise InvalidTopicConfigError(f"Null value not supported for topic configs: {name}")
        checked[name] = check_value(name, CONFIGS[name], value)
    return checked


def check_value(name: str, config: TopicConfig, value: str) -> str:
    """A value that `config` takes, under whatever name the client knows it.

    Raises:
        InvalidTopicConfigError: it does not take it.
    """
    try:
        config.check(value)
    except InvalidTopicConfigError as error:
        raise InvalidTopicConfigError(f"Invalid value {value} for configuration {name}: {error}") from None
    return value


def rules(configs: Mapping[str, str]) -> TopicRules:
    """What a topic's batches are judged by, from all its settings, defaults included."""
    return TopicRules(
        max_message_bytes=int(configs["max.message.bytes"]),
        timestamp_type=_TIMESTAMP_TYPES[configs["message.timestamp.type"]],
        timestamp_before_max_ms=int(configs["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(configs["message.timestamp.after.max.ms"]),
    )
