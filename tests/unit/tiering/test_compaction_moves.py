"""Compactions of coordinators that move to other nodes, before it is their turn and meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.plugin.segment_compaction import CompactionJob, SegmentCompaction, SegmentCompactionError
from diskless_core.tiering.compaction import CompactionRequest, Compactor
from diskless_core.tiering.report import JobReport, JobState
from tests.support.compaction_world import CompactionWorld
from tests.support.produce_path import ProducePath
from tests.support.virtual_time import run

ALL = CompactionRequest(everything=True)


class Shard:
    """A shard that this node leads in `term`, or does not lead."""

    def __init__(self, shard: Any, term: int | None = 3) -> None:
        self._shard = shard
        self.term = term

    @property
    def leading(self) -> bool:
        return self.term is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)


class Engine(SegmentCompaction):
    """Does something with the first segment, and may say that it failed."""

    def __init__(self, then: Callable[[], None], failure: str | None = None) -> None:
        self._then = then
        self._failure = failure

    async def compact(self, job: CompactionJob) -> None:
        self._then()
        if self._failure is not None:
            raise SegmentCompactionError(self._failure)


def with_shards(compactor: Compactor, **shards: Any) -> Compactor:
    """The same compactor on other shards: `s0` is the first."""
    services = compactor._services
    by_index = {int(name[1:]): shard for name, shard in shards.items()}
    return Compactor(replace(services, segments=replace(services.segments, shards=by_index)))


async def ended(compactor: Compactor, request: CompactionRequest = ALL) -> JobReport:
    report = compactor.begin(request)
    await asyncio.gather(*compactor._tasks)
    return report


def on_a_world(test: Callable[[CompactionWorld], Any]) -> Callable[[], None]:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            await test(world)

    def on_virtual_time() -> None:
        run(main)

    on_virtual_time.__name__, on_virtual_time.__doc__ = test.__name__, test.__doc__
    return on_virtual_time


@on_a_world
async def test_a_job_says_whose_it_is_and_for_which_coordinators(world: CompactionWorld) -> None:
    report = await ended(world.compactor(node_id=7))
    assert (report.node_id, report.shards, report.moved, report.state) == (7, [0], [], JobState.FINISHED)


@pytest.mark.parametrize("term", [None, 4], ids=["to another node", "and back"])
def test_a_job_that_fails_as_its_coordinator_moves_says_so(term: int | None) -> None:
    @on_a_world
    async def test(world: CompactionWorld) -> None:
        shard = Shard(world.shard)
        engine = Engine(lambda: setattr(shard, "term", term), "node 1 does not lead it")
        report = await ended(with_shards(world.compactor(engine=engine), s0=shard))
        assert (report.state, report.shards, report.moved) == (JobState.FAILED, [0], [0])

    test()


@on_a_world
async def test_a_job_that_fails_for_another_reason_has_moved_nothing(world: CompactionWorld) -> None:
    report = await ended(world.compactor(engine=Engine(lambda: None, "the disk is full")))
    assert (report.state, report.failures, report.moved) == (JobState.FAILED, ["the disk is full"], [])


@on_a_world
async def test_a_job_that_the_stop_of_its_broker_ends_is_for_others_to_go_on_with(world: CompactionWorld) -> None:
    begun = asyncio.Event()

    class Hangs(SegmentCompaction):
        async def compact(self, job: CompactionJob) -> None:
            begun.set()
            await asyncio.Event().wait()

    compactor = world.compactor(engine=Hangs())
    report = compactor.begin(ALL)
    await begun.wait()
    await compactor.stop()
    assert (report.state, report.failures, report.moved) == (JobState.FAILED, ["the broker stops"], [0])


@on_a_world
async def test_only_the_coordinators_that_are_asked_for_and_led_are_compacted(world: CompactionWorld) -> None:
    shard, other = Shard(world.shard), Shard(world.shard, None)
    compactor = with_shards(world.compactor(), s0=shard, s1=other)
    report = await ended(compactor, replace(ALL, shards=[1]))
    assert (report.shards, report.segments, report.state) == ([], 0, JobState.FINISHED)
    report = await ended(compactor, replace(ALL, shards=[0, 1]))
    assert (report.shards, report.segments > 1) == ([0], True)


@on_a_world
async def test_a_plan_is_made_where_all_of_its_coordinators_are_led(world: CompactionWorld) -> None:
    compactor = with_shards(world.compactor(), s0=Shard(world.shard), s1=Shard(world.shard, None))
    assert [one async for one in compactor.plan(replace(ALL, shards=[0]))]
    for shards in ([1], [0, 1], [5]):
        with pytest.raises(NotCoordinatorError, match="does not lead the Diskless coordinator"):
            [one async for one in compactor.plan(replace(ALL, shards=shards))]


@on_a_world
async def test_a_topic_that_this_node_has_not_heard_of_yet_is_looked_for_in_the_log(world: CompactionWorld) -> None:
    compactor = world.compactor()
    looked = 0

    async def marked_end() -> int:
        nonlocal looked
        looked += 1
        return 0

    shard: Any = Shard(world.shard)
    shard.marked_end = marked_end
    compactor = with_shards(compactor, s0=shard)
    compactor._services = replace(compactor._services, cluster=shard)
    await compactor.learn_topics(CompactionRequest(topics=["t"]))
    assert looked == 0
    await compactor.learn_topics(CompactionRequest(topics=["t", "new"]))
    assert looked == 2, "in the shard that has topics by their names, and in its coordinator"
