"""Brokers on one log whose leaders are nominated by records: who leads what as brokers come, go and fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from diskless_core.broker.coordinators import Coordinators, ShardSettings
from diskless_core.cluster.controller import BALANCE_PAUSE_S, STEADY_S, Controller, ControllerNeighbours
from diskless_core.cluster.membership.model import LiveBroker
from diskless_core.cluster.membership.part import barred, doubtful
from diskless_core.cluster.tables import NOMINATIONS, nomination_key
from diskless_core.config.placement import may_lead, parse_placement
from diskless_core.coordinator.claim_failures import REST
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.diskless.operations import CommitRules
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, GROUPS, short_name
from diskless_core.testing.fakes.log import AppendFault, SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import Sequential
from tests.support.virtual_time import VirtualClock, run

PATIENCE_S = 600.0
KEPT_S = 60.0
SHARDS = 5
ALL = {f"diskless-{index}" for index in range(SHARDS)} | {"groups-0"}


def up(node_id: int, *, is_healthy: bool = True, barred: frozenset[ShardId] = frozenset()) -> LiveBroker:
    return LiveBroker(node_id=node_id, rack=None, is_healthy=is_healthy, barred=barred)


class Broker:
    """One node's coordinators and its controller. A process that is started again keeps its store."""

    def __init__(self, world: World, node_id: int, *, placement: str = "", balances: bool = True) -> None:
        self.node_id = node_id
        self.store = MemoryCoordinatorStore()
        self._world = world
        self._placements = parse_placement(placement)
        self._balances = balances

    async def start(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop(), seed=self.node_id)
        may = partial(may_lead, self._placements)
        self.log = self._world.shared.node(self.node_id)
        await self.log.start()
        services = ShardServices(
            node_id=self.node_id,
            clock=clock,
            log=self.log,
            store=self.store,
            may_lead=lambda shard: may(shard, self.node_id),
        )
        rules = CommitRules(assignment=Sequential())
        self.coordinators = Coordinators(
            services, ShardSettings(counts={DISKLESS: SHARDS, GROUPS: 1}, commit_rules=rules, kept_s=KEPT_S)
        )
        if self.coordinators.nominated is not None:
            self.coordinators.nominated.require_membership(self.node_id, lambda: True)
        await self.coordinators.start_following()
        self.controller = Controller(
            ControllerNeighbours(
                cluster=self.coordinators.cluster,
                shards={one.id: one for one in self.coordinators.all() if one.id != CLUSTER_SHARD},
                brokers=self._world.live,
                may_lead=may,
                balances=self._balances,
                clock=clock,
            )
        )
        self._tasks = [asyncio.create_task(self.controller.run())]
        follows = self.coordinators.follows
        assert follows is not None
        self._tasks += [
            asyncio.create_task(follows.look_after(one)) for one in self.coordinators.followed_by_nomination()
        ]
        for shard in self.coordinators.all():
            await shard.until_caught_up()
        self._world.up[self.node_id] = up(self.node_id)
        await asyncio.wait_for(self.coordinators.until_serving(self.coordinators.all()), PATIENCE_S)

    async def stop(self) -> None:
        self._world.up.pop(self.node_id, None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.coordinators.stop()
        await self.log.stop()

    def copies(self) -> dict[str, frozenset[ShardId]]:
        shards = [one for one in self.coordinators.all() if one.id != CLUSTER_SHARD]
        return {
            "ready": frozenset(one.id for one in shards if one.is_caught_up),
            "led": frozenset(one.id for one in shards if one.claimed_by == self.node_id),
        }

    def barred(self) -> frozenset[ShardId]:
        """What it says in its heartbeats that it cannot lead."""
        return barred(self.coordinators.all(), self.coordinators.cluster)

    def doubtful(self) -> frozenset[ShardId]:
        """What it says in its heartbeats that another one should rather lead."""
        return doubtful(self.coordinators.all(), self.node_id)

    def leads(self) -> set[str]:
        return {short_name(shard.id) for shard in self.coordinators.all() if shard.leading}

    def shard(self, shard_id: ShardId) -> CoordinatorShard[Any]:
        return next(one for one in self.coordinators.all() if one.id == shard_id)

    def terms(self) -> dict[ShardId, int | None]:
        return {shard.id: shard.term for shard in self.coordinators.all()}

    def generations(self) -> dict[ShardId, int]:
        return {one.shard: one.generation for _, one in self.coordinators.cluster.state.rows(NOMINATIONS)}

    def nominated(self, shard: ShardId) -> tuple[int, tuple[int, ...]]:
        found = self.coordinators.cluster.state.committed(NOMINATIONS, nomination_key(shard))
        assert found is not None
        return found.leader, found.followers


class World:
    """Brokers by node id; the first one leads the cluster shard. `up` is what the membership would know."""

    def __init__(self) -> None:
        self.shared = SharedLog(nominates_all_shards=False)
        self.shared.set_leader(CLUSTER_SHARD, 1)
        self.up: dict[int, LiveBroker] = {}
        self.brokers: dict[int, Broker] = {}

    async def start(self, *node_ids: int, placement: str = "", balances: bool = True) -> None:
        for node_id in node_ids:
            self.brokers[node_id] = Broker(self, node_id, placement=placement, balances=balances)
        await asyncio.gather(*(self.brokers[node_id].start() for node_id in node_ids))

    def refuse_appends(self, *node_ids: int) -> None:
        """From now on these nodes can read the log and not write it, and all others can do both."""
        refused = AppendFault.NOTHING_APPENDED
        self.shared.append_error = lambda _shard, node_id: refused if node_id in node_ids else None

    async def die(self, node_id: int) -> None:
        await self.brokers.pop(node_id).stop()

    def live(self) -> list[LiveBroker]:
        """What the controller knows of the brokers that are up, with what they say in their heartbeats."""
        return [
            replace(one, barred=one.barred | broker.barred(), doubtful=broker.doubtful(), **broker.copies())
            for one in self.up.values()
            for broker in (self.brokers[one.node_id],)
        ]

    def led(self) -> list[set[str]]:
        """What each broker leads, without the cluster shard."""
        return [broker.leads() - {"cluster-0"} for broker in self.brokers.values()]

    def counts(self) -> list[int]:
        return sorted(map(len, self.led()))

    def following(self, shard: ShardId) -> set[int]:
        """Who has a copy of a shard."""
        return {one.node_id for one in self.brokers.values() if one.shard(shard).is_followed}

    def all_are_led(self) -> bool:
        return sum(map(len, self.led())) == len(ALL) and set().union(*self.led()) == ALL

    async def until(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not condition():
            assert loop.time() < deadline, self.led()
            await asyncio.sleep(0.01)

    async def until_balanced(self) -> None:
        counts = sorted(
            len(ALL) * (index + 1) // len(self.brokers) - len(ALL) * index // len(self.brokers)
            for index in range(len(self.brokers))
        )
        await self.until(lambda: self.counts() == counts and self.all_are_led())
        await asyncio.sleep(10)
        assert self.counts() == counts


def story(told: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        try:
            await told(world)
        finally:
            for broker in world.brokers.values():
                await broker.stop()

    run(main)


def test_the_first_broker_of_a_cluster_is_nominated_for_everything() -> None:
    async def told(world: World) -> None:
        await world.start(1)
        assert world.led() == [ALL]

    story(told)


def test_brokers_that_join_lead_their_share_and_then_nothing_moves() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3)
        await world.until_balanced()
        before = world.brokers[3].generations()
        await asyncio.sleep(60)
        assert world.brokers[3].generations() == before
        assert all(len(world.brokers[3].nominated(DISKLESS.shard(index))[1]) == 2 for index in range(SHARDS))

    story(told)


def test_shards_move_for_balance_one_after_the_other() -> None:
    async def told(world: World) -> None:
        await world.start(1)
        await world.start(2)
        loop = asyncio.get_running_loop()
        moved_at = []
        begun = loop.time()
        for count in (1, 2, 3):
            await world.until(lambda count=count: len(world.brokers[2].leads()) >= count)
            assert len(world.brokers[2].leads()) == count
            moved_at.append(loop.time())
        assert moved_at[0] - begun >= STEADY_S
        assert all(later - earlier >= BALANCE_PAUSE_S for earlier, later in pairwise(moved_at))

    story(told)


def test_nothing_moves_for_balance_where_the_operator_does_not_want_that() -> None:
    async def told(world: World) -> None:
        await world.start(1, balances=False)
        await world.start(2, balances=False)
        await asyncio.sleep(120)
        assert world.led() == [ALL, set()]
        assert world.brokers[2].nominated(GROUPS.shard(0)) == (1, (2,))

    story(told)


def test_all_shards_of_a_broker_that_dies_are_led_by_others_at_once_and_no_other_leader_moves() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3)
        await world.until_balanced()
        kept = world.brokers[2].terms()
        await world.die(3)
        await world.until(world.all_are_led, within_s=2)
        assert world.counts() == [3, 3]
        assert {shard: term for shard, term in world.brokers[2].terms().items() if kept[shard] is not None} == {
            shard: term for shard, term in kept.items() if term is not None
        }

    story(told)


def test_without_a_controller_nominations_stay_and_leaders_go_on() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3)
        await world.until_balanced()
        before = {node_id: world.brokers[node_id].terms() for node_id in (2, 3)}
        world.shared.set_leader(CLUSTER_SHARD, None)
        await world.die(1)
        await asyncio.sleep(120)
        assert {node_id: world.brokers[node_id].terms() for node_id in (2, 3)} == before

        world.shared.set_leader(CLUSTER_SHARD, 2)
        await world.until(world.all_are_led, within_s=2)

    story(told)


def test_a_new_controller_changes_nothing_that_is_right() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3)
        await world.until_balanced()
        before = world.brokers[3].generations()
        world.shared.set_leader(CLUSTER_SHARD, 3)
        await world.until(lambda: "cluster-0" in world.brokers[3].leads())
        await asyncio.sleep(60)
        assert world.brokers[3].generations() == before

    story(told)


def test_placement_is_honoured() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3, placement="groups-0:2,*:1|3")
        await world.until(lambda: world.counts() == [1, 2, 3])
        assert world.brokers[2].leads() == {"groups-0"}
        assert world.brokers[2].nominated(GROUPS.shard(0)) == (2, ())
        await world.die(3)
        await world.until(world.all_are_led)
        assert world.brokers[2].leads() == {"groups-0"}

    story(told)


def test_a_shard_that_a_broker_cannot_lead_is_led_by_another_one_and_comes_back_when_it_can() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2)
        await world.until_balanced()
        broken = next(iter(world.brokers[2].coordinators.groups)).id
        owner = world.brokers[2].nominated(broken)[0]
        world.up[owner] = up(owner, barred=frozenset([broken]))
        other = 3 - owner
        await world.until(lambda: world.brokers[other].coordinators.groups[0].leading, within_s=2)
        await asyncio.sleep(60)
        assert world.brokers[other].coordinators.groups[0].leading
        assert world.counts() == [3, 3]

    story(told)


def test_a_broker_whose_copy_of_the_cluster_shard_stands_still_leads_nothing_and_is_nominated_for_nothing() -> None:
    """It would not read that it is nominated, nor that another one is."""

    async def told(world: World) -> None:
        await world.start(1, 2, 3)
        await world.until_balanced()
        cluster = world.brokers[3].coordinators.cluster

        def fail(_writes: object) -> None:
            raise RuntimeError("a defect")

        cluster.on_commit(fail)
        await world.die(2)
        await world.until(world.all_are_led)
        assert cluster.failure is not None
        assert world.led() == [ALL, set()]
        terms = world.brokers[1].terms()
        await asyncio.sleep(120)
        assert world.brokers[1].terms() == terms, "nobody claims against the leader"

    story(told)


def test_a_broker_that_can_read_the_log_and_not_write_it_is_not_waited_for() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3)
        await world.until_balanced()
        world.refuse_appends(3)
        for shard in world.brokers[3].coordinators.all():
            if shard.leading:
                with pytest.raises(CoordinatorError):
                    await shard.barrier()
        await world.until(world.all_are_led, within_s=60)
        assert world.led()[2] == set()
        await asyncio.sleep(30)
        assert world.all_are_led()

        world.refuse_appends()
        await asyncio.sleep(2 * REST.first_ms / 1000)
        await world.until_balanced()

    story(told)


def test_a_broker_whose_claims_failed_leads_where_no_other_one_is_left() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3, placement="cluster-0:1,*:2|3")
        await world.until(world.all_are_led)
        world.refuse_appends(3)
        for shard in world.brokers[3].coordinators.all():
            if shard.leading:
                with pytest.raises(CoordinatorError):
                    await shard.barrier()
        await world.until(lambda: world.brokers[2].leads() == ALL, within_s=60)
        assert world.brokers[3].doubtful()
        world.refuse_appends()
        await world.die(2)
        await world.until(lambda: world.brokers[3].leads() == ALL, within_s=5)

    story(told)


def test_where_no_broker_can_write_the_log_leaders_stay_and_lead_at_once_when_it_takes_writes_again() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3)
        await world.until_balanced()
        leaders = {one: world.brokers[1].nominated(one)[0] for one in map(DISKLESS.shard, range(SHARDS))}
        world.refuse_appends(*world.brokers)
        for broker in world.brokers.values():
            for shard in broker.coordinators.all():
                if shard.leading:
                    with pytest.raises(CoordinatorError):
                        await shard.barrier()
        await asyncio.sleep(300)
        world.refuse_appends()
        await world.until(world.all_are_led, within_s=2)
        assert {one: world.brokers[1].nominated(one)[0] for one in leaders} == leaders

    story(told)


def test_a_broker_that_has_trouble_with_its_backends_keeps_what_it_leads_and_is_given_nothing_more() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3)
        await world.until_balanced()
        kept = world.brokers[2].leads()
        world.up[2] = up(2, is_healthy=False)
        await world.die(3)
        await world.until(world.all_are_led, within_s=2)
        await asyncio.sleep(60)
        assert world.brokers[2].leads() == kept
        world.up[1] = up(1, is_healthy=False)
        await asyncio.sleep(60)
        assert world.counts() == [2, 4]
        world.up = {node_id: up(node_id) for node_id in world.up}
        await world.until_balanced()

    story(told)


def test_a_broker_that_comes_back_follows_what_was_nominated_while_it_was_away() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2)
        await world.until_balanced()
        back = world.brokers[2]
        await world.die(2)
        await world.until(world.all_are_led)
        before = world.brokers[1].terms()
        world.brokers[2] = back
        world.shared.pause_reads(2)
        starting = asyncio.create_task(back.start())
        await asyncio.sleep(30)
        assert world.brokers[1].terms() == before
        world.shared.resume_reads(2)
        await starting
        assert world.brokers[1].terms() == before

    story(told)


def test_a_group_coordinator_is_followed_by_its_leader_and_two_more_brokers() -> None:
    async def told(world: World) -> None:
        await world.start(1)
        await world.start(2, 3, 4, 5)
        await world.until_balanced()
        await asyncio.sleep(2 * KEPT_S)

        leader, followers = world.brokers[1].nominated(GROUPS.shard(0))
        named = {leader, *followers}
        assert len(named) == 3
        assert world.following(GROUPS.shard(0)) == named
        for broker in world.brokers.values():
            assert broker.shard(GROUPS.shard(0)).leader_hint == leader
            assert broker.shard(GROUPS.shard(0)).obstacle is None

    story(told)


def test_who_is_named_in_the_place_of_a_broker_that_dies_follows_and_the_next_leader_has_a_copy_already() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3, 4, 5, balances=False)
        shard = GROUPS.shard(0)
        await world.until(lambda: len(world.following(shard)) >= 3 and world.all_are_led())
        await asyncio.sleep(2 * KEPT_S)
        leader, followers = world.brokers[1].nominated(shard)
        if leader == 1:
            world.brokers[1].coordinators.cluster.withdraw()  # the controller is not what this is about
            world.shared.set_leader(CLUSTER_SHARD, followers[0])
        caught_up = {one for one in followers if world.brokers[one].shard(shard).is_caught_up}
        await world.die(leader)

        await world.until(lambda: any(one.shard(shard).leading for one in world.brokers.values()))
        assert {one.node_id for one in world.brokers.values() if one.shard(shard).leading} <= caught_up
        await world.until(lambda: len(world.following(shard)) == 3)

    story(told)


def test_a_copy_is_kept_for_a_while_by_who_is_not_named_any_more() -> None:
    async def told(world: World) -> None:
        await world.start(1, 2, 3, 4, balances=False)
        shard = GROUPS.shard(0)
        await world.until(lambda: len(world.following(shard)) >= 3)
        await asyncio.sleep(2 * KEPT_S)
        leader, followers = world.brokers[1].nominated(shard)
        gone = next(one for one in followers if one != 1)
        world.up[gone] = up(gone, barred=frozenset({shard}))
        await world.until(lambda: gone not in world.brokers[1].nominated(shard)[1])
        await asyncio.sleep(KEPT_S / 2)
        assert gone in world.following(shard)
        await asyncio.sleep(KEPT_S)
        assert gone not in world.following(shard)
        assert len(world.following(shard)) == 3
        assert leader in world.following(shard)

    story(told)
