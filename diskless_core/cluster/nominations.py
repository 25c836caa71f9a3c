"""Who should lead which coordinator: the controller's decisions. Pure.

A nomination names a leader and the brokers that the next leader is chosen from. Only those have a copy of the shard.
Shards whose leader cannot go on get another one at once, all of them. Everything else, such as giving a broker that
returned its share, is one change at a time, and no change is made that would not improve anything: brokers that differ
by one shard are balanced, first in what they lead, then in what they have copies of. Nobody is given a shard to lead
for balance before its copy has caught up: until then it is one follower more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from diskless_core.cluster.membership.model import LiveBroker
from diskless_core.plugin.shard import ShardId

FOLLOWERS = 2
"""A nomination names so many followers, or all candidates where there are fewer; one more while copies move."""

_BALANCED = 1
"""Brokers whose numbers of shards differ by no more are left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """Who should lead a shard.

    Attributes:
        generation: of this shard's nominations, counted from 1.
        followers: the brokers that the next leader is chosen from, ascending.
    """

    shard: ShardId
    generation: int
    leader: int
    followers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Electorate:
    """What the controller knows when it decides.

    Attributes:
        shards: those that it nominates leaders for.
        brokers: those that are up. One that is not healthy keeps what it leads, and is nominated for more only where
            nobody else is left. One that is in doubt keeps it only where nobody else could lead it.
        may_lead: whether the operator lets a broker lead a shard.
        may_balance: whether a leader that could go on may be replaced for the sake of balance now.
    """

    shards: Sequence[ShardId]
    brokers: Sequence[LiveBroker]
    may_lead: Callable[[ShardId, int], bool]
    may_balance: bool = True


def plan(electorate: Electorate, present: Mapping[ShardId, Nomination]) -> Sequence[Nomination]:
    """The next nominations; none at rest. There are several only where leaders cannot go on.

    Args:
        present: the nominations that hold.
    """
    planner = _Planner(electorate, present)
    urgent = list(planner.replace_leaders())
    if urgent:
        return urgent
    return list(planner.complete_followers() or (planner.balance() if electorate.may_balance else ()))


class _Rank(IntEnum):
    """How fit a broker is to lead a shard, the fittest first."""

    READY = 0
    AILING = 1
    DOUBTFUL = 2
    OUT = 3


@dataclass(slots=True)
class _Planner:
    electorate: Electorate
    present: Mapping[ShardId, Nomination]
    brokers: dict[int, LiveBroker] = field(init=False)
    load: dict[int, int] = field(init=False)
    copies: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.brokers = {broker.node_id: broker for broker in self.electorate.brokers}
        self.load = dict.fromkeys(sorted(self.brokers), 0)
        self.copies = dict(self.load)
        for nomination in self._held():
            self._count_load(nomination, 1)
            self._count_copies(nomination, 1)

    def replace_leaders(self) -> Iterator[Nomination]:
        """For each shard whose leader is gone or cannot lead it, or in doubt, and that another broker could lead.

        Shards that never had a leader come last: any broker will do for them, so they level what the others leave.
        """
        for shard in sorted(self.electorate.shards, key=lambda shard: shard not in self.present):
            held = self.present.get(shard)
            rank = _Rank.OUT if held is None else self._rank(shard, held.leader)
            if rank < _Rank.DOUBTFUL:
                continue
            candidates = [one for one in self._candidates(shard) if self._rank(shard, one) < rank]
            if not candidates:
                continue
            followers = () if held is None else held.followers
            leader = min(
                candidates,
                key=lambda one: (
                    self._rank(shard, one),
                    not self._is_ready(shard, one),
                    one not in followers,
                    self.load[one],
                    one,
                ),
            )
            yield self._move(shard, leader)

    def complete_followers(self) -> Sequence[Nomination]:
        """For the first shard whose followers are too few, or in fewer racks than they could be."""
        for held in self._held():
            if self._rank(held.shard, held.leader) is _Rank.OUT:
                continue
            wanted = self._followers(held.shard, held.leader)
            known = self._sound(held.shard, held.followers)
            have, need = (self._merits(held.shard, held.leader, some) for some in (known, wanted))
            if not _are_at_least(have, need):
                behind = not all(self._is_ready(held.shard, one) for one in wanted)
                kept = [one for one in known if behind and one not in wanted and self._is_ready(held.shard, one)]
                return [_with_followers(held, [*wanted, *kept])]
        return []

    def balance(self) -> Sequence[Nomination]:
        """The one change by which the brokers come closer to leading, or else to following, equally many shards."""
        move = self._leader_to_move()
        if move is None:
            return self._without_surplus() or self._with_spread_copy()
        shard, leader = move
        if self._is_ready(shard, leader):
            return [self._move(shard, leader)]
        held = self.present[shard]
        followers = self._sound(shard, held.followers)
        return [] if leader in followers else [_with_followers(held, [*followers, leader])]

    def _without_surplus(self) -> Sequence[Nomination]:
        """For the first shard with more followers than it needs, one less: who can be spared and has the most copies.

        Nobody is spared before all have caught up: the one that has not is there to take another's place.
        """
        for held in self._held():
            followers = self._sound(held.shard, held.followers)
            if len(followers) <= FOLLOWERS or self._rank(held.shard, held.leader) is _Rank.OUT:
                continue
            if not all(self._is_ready(held.shard, one) for one in followers):
                continue
            needed = self._merits(held.shard, held.leader, self._followers(held.shard, held.leader))
            for one in sorted(followers, key=lambda one: (-self.copies[one], one)):
                rest = [other for other in followers if other != one]
                if _are_at_least(self._merits(held.shard, held.leader, rest), needed):
                    return [_with_followers(held, rest)]
        return []

    def _with_spread_copy(self) -> Sequence[Nomination]:
        """For a shard that a broker with many copies follows, as one follower more a broker that has fewer by most."""
        best: tuple[int, Nomination] | None = None
        for held in self._held():
            followers = self._sound(held.shard, held.followers)
            if len(followers) > FOLLOWERS:
                return []  # a copy is moving
            if self._rank(held.shard, held.leader) is _Rank.OUT:
                continue
            for giver in followers:
                taker = self._taker_of_copy(held, giver)
                if taker is None:
                    continue
                gap = self.copies[giver] - self.copies[taker]
                if best is None or gap > best[0]:
                    best = gap, _with_followers(held, [*followers, taker])
        return [best[1]] if best is not None else []

    def _taker_of_copy(self, held: Nomination, giver: int) -> int | None:
        """Who follows a shard in another's place, if it evens out how many copies they have, and costs nothing else."""
        followers = self._sound(held.shard, held.followers)
        merits = self._merits(held.shard, held.leader, followers)
        others = [one for one in followers if one != giver]
        for one in sorted(self.copies, key=lambda one: (self.copies[one], one)):
            if self.copies[giver] - self.copies[one] <= _BALANCED:
                return None
            is_free = one != held.leader and one not in held.followers
            if is_free and self._rank(held.shard, one) is _Rank.READY:
                found = self._merits(held.shard, held.leader, [*others, one])
                if _are_at_least(found, merits):
                    return one
        return None

    def _leader_to_move(self) -> tuple[ShardId, int] | None:
        """A shard, and who is to lead it so that the brokers come closer to leading equally many.

        Where placement is in the way of a direct move, shards are passed on from broker to broker. The move at the
        receiving end comes first; so the way that is left gets shorter, and a direct move ends it.
        """
        ready = [one for one, broker in self.brokers.items() if broker.is_healthy]
        loads = [self.load[one] for one in ready]
        if not loads or max(loads) - min(loads) <= _BALANCED:
            return None
        moves: dict[int, dict[int, ShardId]] = {one: {} for one in ready}
        for held in self._held():
            if self._rank(held.shard, held.leader) is _Rank.READY:
                self._note_moves(held, moves[held.leader])
        ways = [way for one in ready if (way := self._way_from(one, moves)) is not None]
        if not ways:
            return None
        giver, taker = min(ways, key=lambda way: (len(way), self.load[way[-1]] - self.load[way[0]], way))[-2:]
        return moves[giver][taker], taker

    def _note_moves(self, held: Nomination, moves: dict[int, ShardId]) -> None:
        """To each broker that could lead a shard, one shard; best one that it follows, and has caught up with."""
        for one in self._candidates(held.shard):
            if one == held.leader or self._rank(held.shard, one) is not _Rank.READY:
                continue
            if one not in moves or self._closeness(held, one) > self._closeness(self.present[moves[one]], one):
                moves[one] = held.shard

    def _closeness(self, held: Nomination, one: int) -> tuple[bool, bool]:
        is_follower = one in held.followers
        return is_follower, is_follower and self._is_ready(held.shard, one)

    def _way_from(self, giver: int, moves: Mapping[int, Mapping[int, ShardId]]) -> list[int] | None:
        """The shortest way from a broker to one that leads much less; of several, to the one that leads least."""
        ways, reached = deque([[giver]]), {giver}
        found: list[list[int]] = []
        while ways:
            way = ways.popleft()
            if found and len(way) >= len(found[0]):
                break
            for one in sorted(moves[way[-1]]):
                if one in reached:
                    continue
                reached.add(one)
                ways.append([*way, one])
                if self.load[giver] - self.load[one] > _BALANCED:
                    found.append(ways[-1])
        return min(found, key=lambda way: (self.load[way[-1]], way), default=None)

    # --- one shard -----------------------------------------------------------------------------------------------

    def _held(self) -> Iterator[Nomination]:
        return (self.present[shard] for shard in self.electorate.shards if shard in self.present)

    def _rank(self, shard: ShardId, node_id: int) -> _Rank:
        broker = self.brokers.get(node_id)
        if broker is None or shard in broker.barred or not self.electorate.may_lead(shard, node_id):
            return _Rank.OUT
        if shard in broker.doubtful:
            return _Rank.DOUBTFUL
        return _Rank.READY if broker.is_healthy else _Rank.AILING

    def _is_ready(self, shard: ShardId, node_id: int) -> bool:
        """Whether a broker that is up has a copy that has caught up, unless it has not said yet."""
        ready = self.brokers[node_id].ready
        return ready is None or shard in ready

    def _sound(self, shard: ShardId, node_ids: Sequence[int]) -> list[int]:
        return [one for one in node_ids if self._rank(shard, one) is not _Rank.OUT]

    def _count_load(self, nomination: Nomination, change: int) -> None:
        """Who cannot lead a shard does not, whatever the nomination says that nobody can take the place of."""
        if self._rank(nomination.shard, nomination.leader) is not _Rank.OUT:
            self.load[nomination.leader] += change

    def _count_copies(self, nomination: Nomination, change: int) -> None:
        for one in (nomination.leader, *nomination.followers):
            if one in self.copies:
                self.copies[one] += change

    def _candidates(self, shard: ShardId) -> list[int]:
        """All that may be nominated anew, ascending."""
        return [one for one in self.load if self._rank(shard, one) is not _Rank.OUT]

    def _move(self, shard: ShardId, leader: int) -> Nomination:
        held = self.present.get(shard)
        if held is not None:
            self._count_load(held, -1)
        self.load[leader] += 1
        return self._nomination(shard, leader)

    def _nomination(self, shard: ShardId, leader: int) -> Nomination:
        held = self.present.get(shard)
        if held is not None:
            self._count_copies(held, -1)
        nomination = Nomination(
            shard=shard,
            generation=1 if held is None else held.generation + 1,
            leader=leader,
            followers=tuple(sorted(self._followers(shard, leader))),
        )
        self._count_copies(nomination, 1)
        return nomination

    def _followers(self, shard: ShardId, leader: int) -> list[int]:
        """The healthy first, then such in other racks, then those that the present nomination names."""
        held = self.present.get(shard)
        known = () if held is None else (held.leader, *held.followers)
        others = [one for one in self._candidates(shard) if one != leader]
        racks = {self.brokers[leader].rack}
        chosen: list[int] = []
        while others and len(chosen) < FOLLOWERS:
            one = min(
                others,
                key=lambda one: (
                    self._rank(shard, one),
                    self.brokers[one].rack in racks,
                    one not in known,
                    self.copies[one],
                    self.load[one],
                    one,
                ),
            )
            others.remove(one)
            chosen.append(one)
            racks.add(self.brokers[one].rack)
        return chosen

    def _merits(self, shard: ShardId, leader: int, followers: Sequence[int]) -> tuple[int, int, int]:
        """How many followers there are, how many of them healthy, and in how many racks they and the leader are."""
        healthy = sum(self._rank(shard, one) is _Rank.READY for one in followers)
        racks = {self.brokers[one].rack for one in (leader, *followers)}
        return len(followers), min(healthy, FOLLOWERS), len(racks)


def _with_followers(held: Nomination, followers: Sequence[int]) -> Nomination:
    return replace(held, generation=held.generation + 1, followers=tuple(sorted(followers)))


def _are_at_least(have: Sequence[int], need: Sequence[int]) -> bool:
    return all(one >= other for one, other in zip(have, need, strict=True))
