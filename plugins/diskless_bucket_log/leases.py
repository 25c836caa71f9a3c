"""A lease nominates a shard's leader, nothing more: claims in the log decide. What one says, and what to do by it.

A watcher judges a lease by its own monotonic clock: it is over when its nonce has been the same for as long as it says.
No two clocks are compared. The generation grows with every change of holder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum, auto

from diskless_core.plugin.coordinator_log import LeadershipHint
from diskless_core.plugin.wal_object_store import ObjectData

_VERSION = 1
_MAX_GENERATION = 2**62
_MAX_DURATION_MS = 3_600_000
_MAX_NODE_ID = 2**31 - 1


class ForgedLeaseError(Exception):
    """The object is no lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What stands in the lease object.

    Attributes:
        holder: the nominated node; None if the last one withdrew.
        generation: of the nomination.
        nonce: another one with each write.
        duration_ms: how long it holds from when a watcher sees it first.
    """

    holder: int | None
    generation: int
    nonce: str
    duration_ms: int


def encode_lease(lease: Lease) -> bytes:
    """Readable for a person who looks at the object."""
    return json.dumps(
        {
            "version": _VERSION,
            "holder": lease.holder,
            "generation": lease.generation,
            "nonce": lease.nonce,
            "duration.ms": lease.duration_ms,
        }
    ).encode()


def decode_lease(data: ObjectData) -> Lease:
    """Read a lease.

    Raises:
        ForgedLeaseError: that is none.
    """
    try:
        said = json.loads(bytes(data))
        lease = Lease(
            holder=said["holder"],
            generation=said["generation"],
            nonce=said["nonce"],
            duration_ms=said["duration.ms"],
        )
        version = said["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ForgedLeaseError(f"it can't be read: {error!r}") from error
    if version != _VERSION:
        raise ForgedLeaseError(f"its version is {version!r}")
    holds = (
        (lease.holder is None or _is_number(lease.holder, _MAX_NODE_ID))
        and _is_number(lease.generation, _MAX_GENERATION)
        and _is_number(lease.duration_ms, _MAX_DURATION_MS)
        and isinstance(lease.nonce, str)
    )
    if not holds:
        raise ForgedLeaseError(f"it says {lease}")
    return lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a watcher knows.

    Attributes:
        lease: as it was read last; None if there is none, or it was no lease.
        since: when that nonce was seen first, by the watcher's monotonic clock in seconds.
        highest_generation: that it ever saw.
        is_forged: whether the lease object can't be right.
        is_suspect: whether the holder has most likely ended since it wrote the lease.
    """

    lease: Lease | None = None
    since: float = 0.0
    highest_generation: int = -1
    is_forged: bool = False
    is_suspect: bool = False

    def is_held(self, now: float) -> bool:
        """Whether the nomination holds."""
        lease = self.lease
        if lease is None or lease.holder is None or self.is_suspect:
            return False
        return now < self.since + lease.duration_ms / 1000

    def hint(self, now: float) -> LeadershipHint:
        """Whom the lease nominates now."""
        holder = self.lease.holder if self.lease is not None and self.is_held(now) else None
        return LeadershipHint(holder, max(self.highest_generation, 0))


def after_reading(seen: Seen, lease: Lease | None, now: float) -> Seen:
    """What a watcher knows after it read the lease object; `lease` is None if there is none.

    A lease whose generation went back was forged, or restored from a backup.
    """
    if lease is None:
        return Seen(since=now, highest_generation=seen.highest_generation)
    if lease.generation < seen.highest_generation:
        return Seen(since=now, highest_generation=seen.highest_generation, is_forged=True)
    if seen.lease is not None and seen.lease.nonce == lease.nonce:
        return replace(seen, lease=lease, highest_generation=lease.generation, is_forged=False)
    return Seen(lease=lease, since=now, highest_generation=lease.generation)


def after_reading_garbage(seen: Seen, now: float) -> Seen:
    """What a watcher knows after it read something that is no lease."""
    return Seen(since=now, highest_generation=seen.highest_generation, is_forged=True)


def after_suspicion(seen: Seen, node_id: int) -> Seen:
    """What a watcher knows when it was told that a node has most likely ended. The node's next write refutes it."""
    is_holder = seen.lease is not None and seen.lease.holder == node_id
    return replace(seen, is_suspect=True) if is_holder else seen


class Act(Enum):
    """What a node does about a lease."""

    NOTHING = auto()
    TAKE = auto()
    RENEW = auto()
    RELEASE = auto()


def act(seen: Seen, node_id: int, now: float, *, candidate: bool, holds: bool, renew_after_s: float) -> Act:
    """What comes next.

    Args:
        candidate: whether this node may lead.
        holds: whether this instance wrote the lease that was seen: an earlier process may have had the same node id.
        renew_after_s: how old an own lease is when it is renewed.
    """
    if holds and seen.lease is not None:
        if not candidate:
            return Act.RELEASE
        return Act.RENEW if now >= seen.since + renew_after_s else Act.NOTHING
    is_free = not seen.is_held(now) or (seen.lease is not None and seen.lease.holder == node_id)
    return Act.TAKE if candidate and is_free else Act.NOTHING


def next_lease(seen: Seen, what: Act, node_id: int, *, nonce: str, duration_ms: int, floor: int) -> Lease:
    """The lease to write.

    Args:
        floor: a generation that is likely to be above all earlier ones, for when nothing is known of these.
    """
    generation = seen.highest_generation
    if what is not Act.RENEW:
        generation = max(generation + 1, floor if seen.lease is None else 0)
    holder = None if what is Act.RELEASE else node_id
    return Lease(holder=holder, generation=generation, nonce=nonce, duration_ms=duration_ms)


def _is_number(value: object, highest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest
