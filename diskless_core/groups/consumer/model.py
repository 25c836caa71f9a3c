"""A group of the consumer protocol as a value: its members, what each owns, and what each is to own in the end.

Everything here is kept beyond the life of a broker; nothing here decides.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""Member epochs by which a member joins, leaves, and, as a static one, leaves to come back."""


class TopicIdPartition(NamedTuple):
    """One partition."""

    topic_id: uuid.UUID
    partition: int


Partitions = frozenset[TopicIdPartition]

Assigned = Mapping[TopicIdPartition, int]
"""Partitions, each with the member epoch since which the member has it (KIP-1251)."""


class MemberState(IntEnum):
    """How far a member is on its way to the target assignment. The value is what is written down."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions before it gets the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It has the epoch of the target, but waits for partitions that others own still."""


class ConsumerGroupState(StrEnum):
    """States of a group; the value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member said of itself, as ConsumerGroupMemberMetadataValue holds it."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """What a member owns, as ConsumerGroupCurrentMemberAssignmentValue holds it.

    Attributes:
        epoch: the member epoch; `LEAVE_STATIC_EPOCH` while a static member is away.
        previous_epoch: the one before, with which a member comes that missed the last answer.
        assigned: what it may own.
        revoking: what it has to give up, and owns until it says that it does not.
    """

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRegex:
    """The topics that a regular expression matched when it was last looked at."""

    topics: frozenset[str]
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """One group.

    Attributes:
        epoch: the group epoch; it goes up whenever a new target assignment is needed.
        metadata_hash: of the topics subscribed to, when the epoch last went up.
        target_epoch: the group epoch that `targets` was made for.
        members: metadata by member id.
        current: what members own, by member id; who is missing owns nothing and has just come.
        targets: what members are to own in the end; who is missing nothing.
        regexes: resolved regular expressions of the members.
    """

    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: Mapping[str, MemberMetadata] = field(default_factory=dict)
    current: Mapping[str, CurrentAssignment] = field(default_factory=dict)
    targets: Mapping[str, Partitions] = field(default_factory=dict)
    regexes: Mapping[str, ResolvedRegex] = field(default_factory=dict)

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self._is_reconciled(member_id) for member_id in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def _is_reconciled(self, member_id: str) -> bool:
        current = self.current_of(member_id)
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    def current_of(self, member_id: str) -> CurrentAssignment:
        return self.current.get(member_id) or CurrentAssignment()

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, frozenset())

    def static_member_id(self, instance_id: str) -> str | None:
        """Which member a static identity belongs to at present."""
        return next((one for one, metadata in self.members.items() if metadata.instance_id == instance_id), None)

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Names that a member subscribes to, be it by a regular expression, whether such topics exist or not."""
        resolved = self.regexes.get(metadata.topic_regex) if metadata.topic_regex else None
        return metadata.topic_names | resolved.topics if resolved is not None else metadata.topic_names

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Names that anybody in the group subscribes to."""
        return frozenset().union(*(self.topics_of(metadata) for metadata in self.members.values()))

    def owned_by_others(self, member_id: str) -> Iterator[TopicIdPartition]:
        """Partitions that members other than this one own, or have not said to have given up."""
        for other, current in self.current.items():
            if other != member_id:
                yield from current.assigned
                yield from current.revoking
