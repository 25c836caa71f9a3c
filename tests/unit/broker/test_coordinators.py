"""The coordinators of several brokers on one log: what each leads, follows and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from diskless_core.broker.coordinators import Coordinators, ShardSettings
from diskless_core.broker.errors import StartError
from diskless_core.config.placement import may_lead, parse_placement
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_identity import LogName
from diskless_core.coordinator.shard import ShardServices
from diskless_core.coordinator.snapshots import NoSnapshots, Reach, SnapshotSource
from diskless_core.diskless.operations import CommitRules
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, GROUPS, short_name
from diskless_core.testing.fakes.log import FakeCoordinatorLog, SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import Sequential
from tests.support.virtual_time import VirtualClock, run

PATIENCE_S = 600


class Unshared(FakeCoordinatorLog):
    """A log of this broker alone."""

    is_shared = False


class SnapshotOf(NoSnapshots):
    """One shard has a snapshot, which is found after a while. A log that lacks what it knows was lost."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def reached(self, shard: ShardId, name: LogName | None) -> Reach | None:
        if short_name(shard) != self._name:
            return None
        await asyncio.sleep(60)
        raise CoordinatorError("the log was lost")


class Broker:
    """One node's coordinators."""

    def __init__(
        self,
        shared: SharedLog,
        node_id: int,
        *,
        placement: str = "",
        shards: int = 2,
        log: FakeCoordinatorLog | None = None,
        snapshots: SnapshotSource | None = None,
    ) -> None:
        placements = parse_placement(placement)
        self.log = log or shared.node(node_id)
        services = ShardServices(
            node_id=node_id,
            clock=VirtualClock(asyncio.get_running_loop(), seed=node_id),
            log=self.log,
            store=MemoryCoordinatorStore(),
            snapshots=snapshots or NoSnapshots(),
            may_lead=lambda shard: may_lead(placements, shard, node_id),  # type: ignore[arg-type]  # it was text
        )
        rules = CommitRules(assignment=Sequential())
        self.coordinators = Coordinators(
            services, ShardSettings(counts={DISKLESS: shards, GROUPS: 1}, commit_rules=rules)
        )

    async def start(self) -> None:
        await self.log.start()
        await asyncio.wait_for(self.coordinators.start(), PATIENCE_S)

    async def stop(self) -> None:
        await self.coordinators.stop()
        await self.log.stop()

    def leads(self) -> set[str]:
        return {short_name(shard.id) for shard in self.coordinators.all() if shard.leading}


def story(told: Callable[[SharedLog], Awaitable[None]]) -> None:
    async def main() -> None:
        await told(SharedLog())

    run(main)


def test_a_broker_starts_as_follower_of_shards_that_another_one_leads() -> None:
    async def told(shared: SharedLog) -> None:
        first, second = Broker(shared, 1), Broker(shared, 2)
        await first.start()
        await second.start()
        assert first.leads() == {"cluster-0", "diskless-0", "diskless-1", "groups-0"}
        assert second.leads() == set()
        assert [shard.obstacle for shard in second.coordinators.all()] == [None] * 4
        shared.set_leader(GROUPS.shard(0), 2)
        await asyncio.wait_for(second.coordinators.groups[0].until_leading(), PATIENCE_S)
        await asyncio.wait_for(first.coordinators.groups[0].until_serving(), PATIENCE_S)
        assert second.leads() == {"groups-0"}
        for broker in (first, second):
            await broker.stop()

    story(told)


def test_coordinators_are_led_where_they_are_placed() -> None:
    async def told(shared: SharedLog) -> None:
        placement = "0:2|3,1:3,*:2"
        brokers = [Broker(shared, node_id, placement=placement) for node_id in (1, 2, 3)]
        await asyncio.gather(*(broker.start() for broker in brokers))
        assert [broker.leads() for broker in brokers] == [
            set(),
            {"cluster-0", "diskless-0", "groups-0"},
            {"diskless-1"},
        ]
        for broker in brokers:
            await broker.stop()

    story(told)


def test_all_brokers_have_one_cluster_id_and_it_is_the_leaders() -> None:
    async def told(shared: SharedLog) -> None:
        brokers = [Broker(shared, node_id, placement="*:2") for node_id in (1, 2)]
        await asyncio.gather(*(broker.start() for broker in brokers))
        checks = 0

        async def checked() -> None:
            nonlocal checks
            checks += 1

        ids = await asyncio.wait_for(
            asyncio.gather(
                *(brokers[node].coordinators.cluster.cluster_id(f"wanted by {node + 1}", checked) for node in (0, 1))
            ),
            PATIENCE_S,
        )
        assert (ids, checks) == (["wanted by 2"] * 2, 1)
        for broker in brokers:
            await broker.stop()

    story(told)


def test_a_start_that_waits_for_somebody_to_lead_says_so_and_goes_on_when_there_is_one() -> None:
    async def told(shared: SharedLog) -> None:
        waiting = Broker(shared, 1, placement="1:2")
        start = asyncio.create_task(waiting.start())
        with capture_logs() as logs:
            await asyncio.sleep(60)
        said = [entry["waiting_for"] for entry in logs if "cannot start" in entry["event"]]
        assert set(map(tuple, said)) == {("nobody is known to lead __diskless_metadata-1",)}
        assert not start.done()
        leader = Broker(shared, 2)
        await leader.start()
        await asyncio.wait_for(start, PATIENCE_S)
        for broker in (waiting, leader):
            await broker.stop()

    story(told)


def test_fewer_coordinators_than_there_are_end_the_start() -> None:
    async def told(shared: SharedLog) -> None:
        for shards in (2, 3):
            broker = Broker(shared, 1, shards=shards)
            await broker.start()
            await broker.stop()
        refused = Broker(shared, 1, shards=1)
        with pytest.raises(StartError, match="the log has 3 Diskless coordinators"):
            await refused.start()
        await refused.stop()

    story(told)


def test_a_broker_alone_that_may_not_lead_a_coordinator_says_so() -> None:
    async def told(shared: SharedLog) -> None:
        with pytest.raises(StartError, match="does not let broker 1 lead diskless-1, and nobody else can"):
            Broker(shared, 1, placement="1:2|3", log=Unshared(shared, 1))

    story(told)


@pytest.mark.parametrize(
    ("placement", "led_by_1"),
    [
        ("", {"cluster-0", "groups-0", "0", "1"}),
        ("*:2", set()),
        ("0:2", {"cluster-0", "groups-0", "1"}),
        ("*:2,diskless-1:1|2", {"1"}),
        ("__consumer_offsets-0:2|1,*:3", {"groups-0"}),
    ],
)
def test_a_placement_says_who_may_lead(placement: str, led_by_1: set[str]) -> None:
    shards = {
        "cluster-0": CLUSTER_SHARD,
        "groups-0": GROUPS.shard(0),
        **{str(index): DISKLESS.shard(index) for index in range(2)},
    }
    placements = parse_placement(placement)
    assert isinstance(placements, tuple)
    assert {name for name, shard in shards.items() if may_lead(placements, shard, 1)} == led_by_1


def test_nothing_is_written_where_one_of_the_logs_was_lost() -> None:
    async def told(shared: SharedLog) -> None:
        broker = Broker(shared, 1, log=Unshared(shared, 1), snapshots=SnapshotOf("diskless-1"))
        with pytest.raises(CoordinatorError, match="the log was lost"):
            await broker.start()
        await broker.stop()
        assert [shared.content(shard.id) for shard in broker.coordinators.all()] == [[]] * 4

    story(told)


def test_a_broker_alone_leads_everything_once_all_is_opened() -> None:
    async def told(shared: SharedLog) -> None:
        broker = Broker(shared, 1, log=Unshared(shared, 1))
        await broker.start()
        assert broker.leads() == {"cluster-0", "diskless-0", "diskless-1", "groups-0"}
        await broker.stop()

    story(told)
