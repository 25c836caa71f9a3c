"""What goes into and comes out of the classic group protocol: requests, answers, and what the shell has to do.

A request that can wait carries an `id` that the shell chose; the answer to it comes back with the same one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from diskless_core.groups.model import PersistedGroup
from diskless_core.protocol.errors import ErrorCode

NO_MEMBER_ID = ""
NO_GENERATION = -1

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols in its order of preference, each with the member's metadata for it."""


class GroupState(StrEnum):
    """States of a classic group; the value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# --- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request.

    Attributes:
        new_member_id: what the member is called if it has no id yet.
        needs_member_id: whether a dynamic member without id is sent away to come back with one (version 4 and up).
        can_skip_assignment: whether a returning static leader can be told to keep the assignment (version 9 and up).
    """

    id: int
    member_id: str
    instance_id: str | None = None
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool
    can_skip_assignment: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup request. `protocol_type` and `protocol` are None where the version has none (below 5)."""

    id: int
    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A member as LeaveGroup names it; an administrator may name a static one by its instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


# --- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as the leader gets to see it."""

    member_id: str
    instance_id: str | None = None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """`members` is empty for everybody but the leader. `protocol_type` and `protocol` are None in errors."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """`protocol_type` and `protocol` are None in errors."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


# --- effects ---------------------------------------------------------------------------------------------------------


class TimerKind(StrEnum):
    """What a timer is for."""

    SESSION = "session"
    """A member did not heartbeat, or did not come back with the id that it was given."""
    JOIN = "join"
    """The members had their time to rejoin."""
    SYNC = "sync"
    """The members had their time to ask for their assignment."""


@dataclass(frozen=True, slots=True)
class Timer:
    """One timer of a group. `member_id` only for `SESSION`."""

    kind: TimerKind
    member_id: str = NO_MEMBER_ID


@dataclass(frozen=True, slots=True)
class Answered:
    """A waiting request is answered."""

    id: int
    answer: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the group down, then call `ClassicGroup.persisted(token)`. The shell stamps the time.

    Writes of one group must reach the log in the order of these effects. When one is not known to have succeeded, the
    group must be dropped and read again.
    """

    token: int
    group: PersistedGroup


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Start a timer, in place of one that is running."""

    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop a timer if it is running."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Moved:
    """The group is in another state; for logs and metrics."""

    state: GroupState
    generation: int
    reason: str


Effect = Answered | Persist | SetTimer | CancelTimer | Moved
