"""Who is in a classic group: members, static identities, expected members, the leader, the vote on a protocol. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diskless_core.groups.effects import Protocols


@dataclass(slots=True, kw_only=True)
class Member:
    """One member.

    Attributes:
        is_new: it has not been through a rebalance yet, so its waiting JoinGroup does not keep its session alive.
        awaiting_join: id of its JoinGroup request that has no answer yet.
        awaiting_sync: the same for SyncGroup.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: int | None = None
    awaiting_sync: int | None = None

    @property
    def keeps_session(self) -> bool:
        """Whether it counts as alive without heartbeats, because it waits for an answer."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol, empty for one that it does not know."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class Roster:
    """The members of a group in order of arrival.

    Attributes:
        leader: the member that assigns, None without members.
        expected: ids that were given to dynamic members who have not come back with them yet.
    """

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self.leader: str | None = None
        self.expected: set[str] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static_member_id(self, instance_id: str | None) -> str | None:
        """Which member a static identity belongs to at present."""
        return self._static.get(instance_id) if instance_id is not None else None

    @property
    def awaiting_join(self) -> int:
        """How many members wait for the answer to a JoinGroup."""
        return sum(member.awaiting_join is not None for member in self._members.values())

    @property
    def has_everybody_joined(self) -> bool:
        return not self.expected and self.awaiting_join == len(self._members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time that the slowest member asks for."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    # --- changes -------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        self._supporters.update(name for name, _ in member.protocols)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.expected.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Take a member out; the leader's place goes to the one who has been there longest."""
        self.expected.discard(member_id)
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._supporters.subtract(name for name, _ in member.protocols)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member a new id; all else, leadership too, stays."""
        del self._members[member.member_id]
        if self.leader == member.member_id:
            self.leader = new_member_id
        if member.instance_id is not None:
            self._static[member.instance_id] = new_member_id
        member.member_id = new_member_id
        self._members[new_member_id] = member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._supporters.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        self._supporters.update(name for name, _ in protocols)

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one who rejoined. False when nobody did, or nobody is left."""
        if self.leader is None:
            return False
        if self._members[self.leader].awaiting_join is None:
            joined = next((one.member_id for one in self._members.values() if one.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    # --- the vote ------------------------------------------------------------------------------------------------

    def can_agree_on(self, protocols: Iterable[str]) -> bool:
        """Whether all members know one of these."""
        return any(self._supporters[name] == len(self._members) for name in protocols)

    def vote(self) -> str:
        """The protocol that most members prefer among those that all know; of equals the earlier member's choice."""
        votes: Counter[str] = Counter()
        for member in self._members.values():
            votes[next(name for name, _ in member.protocols if self._supporters[name] == len(self._members))] += 1
        return max(votes, key=lambda name: votes[name])
