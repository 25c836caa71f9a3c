"""Settings of the group coordinator, as the broker's configuration hands them over."""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Apache Kafka's `group.*` and `offsets.*` settings with its defaults; times are milliseconds.

    Attributes:
        min_session_timeout_ms: `group.min.session.timeout.ms`, inclusive.
        max_session_timeout_ms: `group.max.session.timeout.ms`, inclusive.
        initial_rebalance_delay_ms: `group.initial.rebalance.delay.ms`: how long an empty group waits for more members.
        max_size: `group.max.size`: members that a group may have.
        new_member_join_timeout_ms: how long a new member's JoinGroup may wait before the member is given up.
        offset_metadata_max_bytes: `offset.metadata.max.bytes`, counted in characters as Apache Kafka does.
        offsets_retention_ms: `offsets.retention.minutes`: how long offsets outlive the last use of their group.
        offsets_retention_check_interval_ms: `offsets.retention.check.interval.ms`.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * _MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * _MINUTE_MS
