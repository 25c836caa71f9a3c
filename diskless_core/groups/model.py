"""What is kept of groups and committed offsets beyond the life of a broker. Pure: values only, no behaviour."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A committed offset of one partition, as OffsetCommitValue holds it.

    Attributes:
        offset: the next offset that the group will read.
        leader_epoch: of the last record consumed, or `NO_LEADER_EPOCH`.
        metadata: the client's own text.
        commit_timestamp_ms: when it was committed.
        expire_timestamp_ms: when it expires by the wish of a client of OffsetCommit 2 to 4, or `NO_TIMESTAMP`. The
            record of such an offset (version 1) holds neither leader epoch nor topic id.
        topic_id: the topic's id at the time of the commit, where it was known.
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: uuid.UUID | None = None

    def __post_init__(self) -> None:
        if self.expire_timestamp_ms != NO_TIMESTAMP and (self.topic_id or self.leader_epoch != NO_LEADER_EPOCH):
            raise ValueError("an offset with its own expiry has no place for a topic id or a leader epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedMember:
    """One member in GroupMetadataValue; `subscription` is its metadata for the group's protocol."""

    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedGroup:
    """A group of the classic protocol as GroupMetadataValue holds it.

    Attributes:
        protocol_type: "" while no member has ever named one.
        state_timestamp_ms: when the group got into this state, or `NO_TIMESTAMP`.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int = NO_TIMESTAMP
    members: tuple[PersistedMember, ...] = ()
