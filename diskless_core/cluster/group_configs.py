"""The settings that a consumer group can have, what values they take, and which value is in force. Pure.

Apache Kafka's names and rules (KIP-848, KIP-932, KIP-1071). There are no share groups and streams groups here: their
settings are accepted, judged and kept, without an effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from diskless_core.cluster.config_layers import BrokerLayers
from diskless_core.cluster.config_model import ConfigEntry, ConfigSource, ConfigType, Synonym
from diskless_core.cluster.config_values import (
    MAX_INT,
    InvalidTopicConfigError,
    ValueCheck,
    boolean,
    number,
    one_of,
)
from diskless_core.cluster.topic_configs import BrokerSynonym, TopicConfig

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
_WITH_EFFECT = frozenset({SESSION_TIMEOUT, HEARTBEAT_INTERVAL})

BROKER_DEFAULTS: Mapping[str, int] = {
    "group.consumer.session.timeout.ms": 45_000,
    "group.consumer.min.session.timeout.ms": 45_000,
    "group.consumer.max.session.timeout.ms": 60_000,
    "group.consumer.heartbeat.interval.ms": 5_000,
    "group.consumer.min.heartbeat.interval.ms": 5_000,
    "group.consumer.max.heartbeat.interval.ms": 15_000,
    "group.consumer.assignment.interval.ms": 1_000,
    "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.max.assignment.interval.ms": 15_000,
    "group.share.session.timeout.ms": 45_000,
    "group.share.min.session.timeout.ms": 45_000,
    "group.share.max.session.timeout.ms": 60_000,
    "group.share.heartbeat.interval.ms": 5_000,
    "group.share.min.heartbeat.interval.ms": 5_000,
    "group.share.max.heartbeat.interval.ms": 15_000,
    "group.share.assignment.interval.ms": 1_000,
    "group.share.min.assignment.interval.ms": 0,
    "group.share.max.assignment.interval.ms": 15_000,
    "group.share.delivery.count.limit": 5,
    "group.share.min.delivery.count.limit": 2,
    "group.share.max.delivery.count.limit": 10,
    "group.share.partition.max.record.locks": 2_000,
    "group.share.min.partition.max.record.locks": 100,
    "group.share.max.partition.max.record.locks": 4_000,
    "group.share.record.lock.duration.ms": 30_000,
    "group.share.min.record.lock.duration.ms": 15_000,
    "group.share.max.record.lock.duration.ms": 60_000,
    "group.streams.session.timeout.ms": 45_000,
    "group.streams.min.session.timeout.ms": 45_000,
    "group.streams.max.session.timeout.ms": 60_000,
    "group.streams.heartbeat.interval.ms": 5_000,
    "group.streams.min.heartbeat.interval.ms": 5_000,
    "group.streams.max.heartbeat.interval.ms": 15_000,
    "group.streams.assignment.interval.ms": 1_000,
    "group.streams.min.assignment.interval.ms": 0,
    "group.streams.max.assignment.interval.ms": 15_000,
    "group.streams.num.standby.replicas": 0,
    "group.streams.max.standby.replicas": 2,
    "group.streams.initial.rebalance.delay.ms": 3_000,
}
"""Kafka's settings of brokers that groups follow or are limited by: those that a broker here lacks have this value."""


BrokerValue = Callable[[str], int]


class _Limits(NamedTuple):
    """The settings of the broker that a group's own value has to lie between, both inclusive."""

    lowest: str | None
    highest: str


def _between(kind: str, what: str) -> _Limits:
    return _Limits(f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")


_LIMITS: Mapping[str, _Limits] = {
    **{
        f"{kind}.{what}": _between(kind, what)
        for kind in ("consumer", "share", "streams")
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    },
    **{
        f"share.{what}": _between("share", what)
        for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
    },
    "streams.num.standby.replicas": _Limits(None, "group.streams.max.standby.replicas"),
}

_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d{1,1000})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d{1,1000})H)?(?:(?P<minutes>[-+]?\d{1,1000})M)?"
    r"(?:(?P<seconds>[-+]?\d{1,1000})(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNIT_S = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_BY_DURATION = "by_duration:"


def _offset_reset(value: str) -> None:
    if value.strip() not in ("earliest", "latest") and not _is_duration(value.strip()):
        raise InvalidTopicConfigError(f"it has to be earliest, latest or {_BY_DURATION}<PnDTnHnMn.nS>")


def _is_duration(value: str) -> bool:
    """Whether it names a duration that is not negative; each of its parts may have a sign, as in Java."""
    found = _DURATION.fullmatch(value.removeprefix(_BY_DURATION)) if value.startswith(_BY_DURATION) else None
    if found is None or found["time"] in ("T", "t") or not any(found[unit] for unit in _UNIT_S):
        return False
    total_s = sum(int(found[unit] or 0) * length_s for unit, length_s in _UNIT_S.items())
    fraction = int((found["fraction"] or "").ljust(9, "0"))
    total_ns = total_s * 10**9 + (-fraction if (found["seconds"] or "").startswith("-") else fraction)
    return total_ns <= 0 if found["sign"] == "-" else total_ns >= 0


def _number(name: str, help_text: str, lowest: int = 1) -> tuple[str, TopicConfig]:
    follows = f"group.{name}"
    return name, TopicConfig(
        type=ConfigType.INT,
        help=help_text,
        check=number(lowest, MAX_INT),
        follows=(BrokerSynonym(follows),),
        default=str(BROKER_DEFAULTS[follows]),
        has_effect=name in _WITH_EFFECT,
    )


CONFIGS: Mapping[str, TopicConfig] = dict(
    (
        _number(
            "consumer.assignment.interval.ms",
            "Kept without an effect: an assignment is made as soon as the group needs one.",
            lowest=0,
        ),
        _number(HEARTBEAT_INTERVAL, "How often members are told to send a heartbeat, in milliseconds."),
        _number(SESSION_TIMEOUT, "Time without a heartbeat after which a member is out, in milliseconds."),
        _number("share.assignment.interval.ms", "Of share groups; kept without an effect.", lowest=0),
        (
            "share.auto.offset.reset",
            TopicConfig(
                type=ConfigType.STRING,
                help="Of share groups; kept without an effect.",
                check=ValueCheck(_offset_reset, f"earliest, latest, {_BY_DURATION}<PnDTnHnMn.nS>"),
                default="latest",
                has_effect=False,
            ),
        ),
        _number("share.delivery.count.limit", "Of share groups; kept without an effect.", lowest=2),
        _number("share.heartbeat.interval.ms", "Of share groups; kept without an effect."),
        (
            "share.isolation.level",
            TopicConfig(
                type=ConfigType.STRING,
                help="Of share groups; kept without an effect.",
                check=one_of("read_committed", "read_uncommitted"),
                default="read_uncommitted",
                has_effect=False,
            ),
        ),
        _number("share.partition.max.record.locks", "Of share groups; kept without an effect.", lowest=100),
        _number("share.record.lock.duration.ms", "Of share groups; kept without an effect.", lowest=1_000),
        (
            "share.renew.acknowledge.enable",
            TopicConfig(
                type=ConfigType.BOOLEAN,
                help="Of share groups; kept without an effect.",
                check=boolean,
                default="true",
                has_effect=False,
            ),
        ),
        _number("share.session.timeout.ms", "Of share groups; kept without an effect."),
        _number("streams.assignment.interval.ms", "Of streams groups; kept without an effect.", lowest=0),
        _number("streams.heartbeat.interval.ms", "Of streams groups; kept without an effect."),
        _number("streams.initial.rebalance.delay.ms", "Of streams groups; kept without an effect.", lowest=0),
        _number("streams.num.standby.replicas", "Of streams groups; kept without an effect.", lowest=0),
        _number("streams.session.timeout.ms", "Of streams groups; kept without an effect."),
    )
)
"""All settings of a group by name."""


def without_effect(names: Iterable[str]) -> Sequence[str]:
    """Those of them that change nothing here."""
    return [name for name in names if name in CONFIGS and not CONFIGS[name].has_effect]


def broker_value(name: str, layers: BrokerLayers) -> int:
    """The value of one of `BROKER_DEFAULTS` that is in force on this broker."""
    return int(_of_broker(name, str(BROKER_DEFAULTS[name]), layers)[0].value or 0)


def _of_broker(name: str, default: str, layers: BrokerLayers) -> tuple[Synonym, ...]:
    if name in layers.settings.described:
        return layers.synonyms(name)
    return (Synonym(name, default, ConfigSource.DEFAULT),)


def check_together(own: Mapping[str, str], broker: BrokerValue) -> None:
    """Check all settings of a group's own, each of which has passed its check, against the broker's and each other.

    Args:
        broker: the value of one of the broker's settings, see `broker_value`.

    Raises:
        InvalidTopicConfigError: the first that the broker does not allow.
    """
    for name, limits in _LIMITS.items():
        if name not in own:
            continue
        if limits.lowest is not None and int(own[name]) < broker(limits.lowest):
            raise InvalidTopicConfigError(
                f"{name} must be greater than or equal to {limits.lowest}, which is {broker(limits.lowest)}"
            )
        if int(own[name]) > broker(limits.highest):
            raise InvalidTopicConfigError(
                f"{name} must be less than or equal to {limits.highest}, which is {broker(limits.highest)}"
            )
    for kind in ("consumer", "share", "streams"):
        timeout, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        timeout_ms, interval_ms = (int(own.get(name, broker(f"group.{name}"))) for name in (timeout, interval))
        if (timeout in own or interval in own) and timeout_ms <= interval_ms:
            raise InvalidTopicConfigError(f"{timeout} must be greater than {interval}, which is {interval_ms}")


def in_force(name: str, own: Mapping[str, str], broker: BrokerValue) -> int:
    """The value of a limited number: the group's, within what the broker allows by now, or else the broker's."""
    if name not in own:
        return broker(f"group.{name}")
    limits = _LIMITS[name]
    lowest = broker(limits.lowest) if limits.lowest is not None else 0
    return min(max(int(own[name]), lowest), broker(limits.highest))


def entries(own: Mapping[str, str], layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """All settings of a group that has these of its own, by name."""
    for name, config in CONFIGS.items():
        followed = config.follows[0].name if config.follows else name
        synonyms = _of_broker(followed, config.default, layers)
        if name in own:
            synonyms = (Synonym(name, _plain(own[name], config.type), ConfigSource.DYNAMIC_GROUP), *synonyms)
        yield ConfigEntry(
            name=name,
            value=synonyms[0].value,
            type=config.type,
            source=synonyms[0].source,
            read_only=False,
            secret=False,
            synonyms=synonyms,
            help=config.help,
        )


def _plain(value: str, kind: ConfigType) -> str:
    """A value as it was understood: Apache Kafka shows " +5" as "5" and "FALSE" as "false"."""
    match kind:
        case ConfigType.INT:
            return str(int(value))
        case ConfigType.BOOLEAN:
            return value.strip().lower()
    return value.strip()
