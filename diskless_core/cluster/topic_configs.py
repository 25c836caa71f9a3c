"""The settings that a topic can have, what values they take, and the rules that follow from them. Pure.

Apache Kafka's names. What has no meaning here is refused with the reason instead of being ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from diskless_core.coordinator.commands import TimestampType
from diskless_core.produce.validation import TopicRules

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


class InvalidTopicConfigError(ValueError):
    """A setting is unknown, or its value is not one that it takes. The message is meant for the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """The broker's settings that hold for a topic that has none of its own."""

    message_max_bytes: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int


def _number(lowest: int, highest: int) -> Callable[[str], None]:
    def check(value: str) -> None:
        try:
            number = int(value)
        except ValueError:
            raise InvalidTopicConfigError(f"it has to be a number, not {value!r}") from None
        if not lowest <= number <= highest:
            raise InvalidTopicConfigError(f"it has to be from {lowest} to {highest}, not {number}")

    return check


def _one_of(*values: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in values:
            raise InvalidTopicConfigError(f"it has to be {' or '.join(values)}, not {value!r}")

    return check


CHECKS: Mapping[str, Callable[[str], None]] = {
    "cleanup.policy": _one_of("delete"),
    "compression.type": _one_of("producer"),
    "max.message.bytes": _number(0, _MAX_INT),
    "message.timestamp.after.max.ms": _number(0, _MAX_LONG),
    "message.timestamp.before.max.ms": _number(0, _MAX_LONG),
    "message.timestamp.type": _one_of(*_TIMESTAMP_TYPES),
    "retention.bytes": _number(-1, _MAX_LONG),
    "retention.ms": _number(-1, _MAX_LONG),
    "segment.bytes": _number(1024 * 1024, _MAX_INT),
    "segment.ms": _number(1, _MAX_LONG),
}


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings, if all of them can be had.

    Raises:
        InvalidTopicConfigError: the first that cannot, and why.
    """
    checked: dict[str, str] = {}
    for name, value in configs.items():
        if name not in CHECKS:
            raise InvalidTopicConfigError(f"Unknown topic config name: {name}")
        if value is None:
            raise InvalidTopicConfigError(f"Null value not supported for topic configs: {name}")
        try:
            CHECKS[name](value)
        except InvalidTopicConfigError as error:
            raise InvalidTopicConfigError(f"Invalid value {value} for configuration {name}: {error}") from None
        checked[name] = value
    return checked


def rules(configs: Mapping[str, str], defaults: TopicDefaults) -> TopicRules:
    """What a topic's batches are judged by, from its checked settings."""
    timestamp_type = configs.get("message.timestamp.type")
    return TopicRules(
        max_message_bytes=int(configs.get("max.message.bytes", defaults.message_max_bytes)),
        timestamp_type=_TIMESTAMP_TYPES[timestamp_type] if timestamp_type else defaults.timestamp_type,
        timestamp_before_max_ms=int(configs.get("message.timestamp.before.max.ms", defaults.timestamp_before_max_ms)),
        timestamp_after_max_ms=int(configs.get("message.timestamp.after.max.ms", defaults.timestamp_after_max_ms)),
    )
