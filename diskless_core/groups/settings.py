"""Settings of the group coordinator, as the broker's configuration hands them over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diskless_core.config.broker import BrokerConfig

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTimes:
    """What holds for the members of one group of the consumer protocol, with Apache Kafka's defaults.

    Attributes:
        session_timeout_ms: time without a heartbeat after which a member is out.
        heartbeat_interval_ms: how often members are told to come.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000


ConsumerTimesOf = Callable[[str], ConsumerTimes]
"""The times of a group, by its id, as they are now. An operator may change them while the group is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Apache Kafka's `group.*` and `offsets.*` settings with its defaults; times are milliseconds.

    Attributes:
        min_session_timeout_ms: `group.min.session.timeout.ms`, inclusive.
        max_session_timeout_ms: `group.max.session.timeout.ms`, inclusive.
        initial_rebalance_delay_ms: `group.initial.rebalance.delay.ms`: how long an empty group waits for more members.
        max_size: `group.max.size`: members that a group may have.
        new_member_join_timeout_ms: how long a new member's JoinGroup may wait before the member is given up.
        consumer_max_size: `group.consumer.max.size`.
        consumer_assignors: `group.consumer.assignors`; the first one is used where members have no wish.
        consumer_regex_refresh_ms: how often new topics are matched with regular expressions that are subscribed to.
        offset_metadata_max_bytes: `offset.metadata.max.bytes`, counted in characters as Apache Kafka does.
        offsets_retention_ms: `offsets.retention.minutes`: how long offsets outlive the last use of their group.
        offsets_retention_check_interval_ms: `offsets.retention.check.interval.ms`.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * _MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_regex_refresh_ms: int = 10_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * _MINUTE_MS

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        """The settings of a broker."""
        return cls(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=tuple(assignor.value for assignor in config.group_consumer_assignors),
            offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        )
