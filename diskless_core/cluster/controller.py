"""The controller: while this node leads the cluster shard, it nominates leaders of all other shards.

It decides nothing by itself: `nominations.plan` does, from who is up. Nominations are records, so they hold while there
is no controller, and the next one goes on from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from diskless_core.clock import Clock
from diskless_core.cluster import operations
from diskless_core.cluster.membership.model import LiveBroker
from diskless_core.cluster.nominations import Electorate, Nomination, plan
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import NOMINATIONS, nomination_key
from diskless_core.coordinator.claim_failures import PATIENCE_S
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import short_name

LOOK_S = 0.5
"""Between looks at who is up, where nobody says that it has changed."""

STEADY_S = 5.0
"""No leader moves for balance before the brokers have been the same for so long: one that crashes again and again is
given nothing."""

GRACE_S = 5.0
"""No leader is replaced for what it says of itself before a controller has been at work for so long. A log that was
away has kept all nodes from leading alike, and they lead again by themselves."""

BALANCE_PAUSE_S = 1.0
"""Between two moves for balance."""

HANDOVER_S = PATIENCE_S + 5.0
"""A nominated leader that has not claimed its shard after so long is waited for no more. One whose claims fail has said
so by then, and is given nothing more."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNeighbours:
    """What the controller stands on.

    Attributes:
        cluster: this node's replica of the cluster shard.
        shards: this node's replicas of the shards that it nominates leaders for.
        brokers: those that can be given work, by node id, as this node knows while it leads the cluster shard.
        may_lead: whether the operator lets a broker lead a shard.
        balances: whether leaders move so that brokers lead equally many.
    """

    cluster: ClusterShard
    shards: Mapping[ShardId, CoordinatorShard[Any]]
    brokers: Callable[[], Sequence[LiveBroker]]
    may_lead: Callable[[ShardId, int], bool]
    balances: bool
    clock: Clock


class Controller:
    """See the module. `run` is its work."""

    def __init__(self, neighbours: ControllerNeighbours) -> None:
        self._near = neighbours
        self._news = asyncio.Event()
        self._brokers: Sequence[LiveBroker] = ()
        self._began = 0.0
        self._steady_since = 0.0
        self._moved_at = 0.0
        self._awaited: dict[ShardId, tuple[int, float]] = {}
        self._rest: tuple[object, ...] | None = None

    def look(self) -> None:
        """Something may have changed: do not wait for the next look."""
        self._news.set()

    async def run(self) -> None:
        """Nominate for ever, whenever this node leads the cluster shard."""
        while True:
            term = await self._near.cluster.until_term_changes(None)
            self._began = self._steady_since = self._moved_at = self._near.clock.monotonic()
            self._awaited, self._rest = {}, None
            while self._near.cluster.term == term:
                self._news.clear()
                try:
                    changes = await self._nominate()
                except CoordinatorError as error:
                    _log.warning("leaders could not be nominated; it is tried again", error=str(error))
                    changes = ()
                if not changes:
                    await self._until_news()

    async def _until_news(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _nominate(self) -> Sequence[Nomination]:
        """Write what is to be changed now; whether that was anything."""
        held = self._held()
        electorate = self._electorate(held)
        situation = (electorate.brokers, electorate.may_balance, held)
        if situation == self._rest:
            return ()
        if not plan(electorate, held):
            self._rest = situation
            return ()
        changes = await self._near.cluster.submit(lambda command: operations.nominate(command, electorate))
        now = self._near.clock.monotonic()
        for change in changes:
            before = held.get(change.shard)
            if before is None or before.leader != change.leader:
                self._moved_at = now
                self._awaited[change.shard] = change.leader, now
            _log.info(
                "a broker is nominated to lead",
                shard=short_name(change.shard),
                leader=change.leader,
                followers=change.followers,
                before=before.leader if before is not None else None,
            )
        return changes

    def _electorate(self, held: Mapping[ShardId, Nomination]) -> Electorate:
        brokers = self._near.brokers()
        now = self._near.clock.monotonic()
        if now - self._began < GRACE_S:
            brokers = [_keeping_what_it_leads(one, held) for one in brokers]
        if _steady(brokers) != _steady(self._brokers):
            self._steady_since = now
        self._brokers = brokers
        return Electorate(
            shards=list(self._near.shards),
            brokers=brokers,
            may_lead=self._near.may_lead,
            may_balance=self._near.balances
            and now - self._steady_since >= STEADY_S
            and now - self._moved_at >= BALANCE_PAUSE_S
            and not self._is_handing_over(now),
        )

    def _held(self) -> Mapping[ShardId, Nomination]:
        state = self._near.cluster.state
        held = (state.get(NOMINATIONS, nomination_key(shard)) for shard in self._near.shards)
        return {nomination.shard: nomination for nomination in held if nomination is not None}

    def _is_handing_over(self, now: float) -> bool:
        """Whether a nominated leader has still to claim its shard."""
        self._awaited = {
            shard: (leader, since)
            for shard, (leader, since) in self._awaited.items()
            if not self._has_claimed(shard, leader) and now - since < HANDOVER_S
        }
        return bool(self._awaited)

    def _has_claimed(self, shard: ShardId, node_id: int) -> bool:
        """By this node's copy, if it has one, or by what the broker says."""
        if self._near.shards[shard].claimed_by == node_id:
            return True
        return any(shard in one.led for one in self._brokers if one.node_id == node_id)


def _keeping_what_it_leads(broker: LiveBroker, held: Mapping[ShardId, Nomination]) -> LiveBroker:
    """The broker, as if it could lead all that it is nominated for."""
    led = {shard for shard, nomination in held.items() if nomination.leader == broker.node_id}
    return replace(broker, barred=broker.barred - led, doubtful=broker.doubtful - led)


def _steady(brokers: Sequence[LiveBroker]) -> Sequence[LiveBroker]:
    """What counts of brokers where they have to be the same for a while: not what they lead, or have caught up with."""
    return [replace(one, ready=None, led=frozenset()) for one in brokers]
