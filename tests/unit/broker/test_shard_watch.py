"""What is exported of a node's coordinator shards."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from diskless_core.broker.coordinators import Coordinators, ShardSettings
from diskless_core.broker.shard_watch import AT_ONCE, LOOK_S, ShardWatch
from diskless_core.coordinator.shard import ShardServices
from diskless_core.diskless.operations import CommitRules
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBounds
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import DISKLESS, GROUPS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import TOPIC, Sequential, batch, commit_of
from tests.support.virtual_time import VirtualClock, run


@asynccontextmanager
async def served_shards() -> AsyncIterator[tuple[Coordinators, Metrics]]:
    """All shards of a node, two of them diskless ones, which it leads."""
    log = SharedLog().node(1)
    await log.start()
    metrics = Metrics()
    services = ShardServices(
        node_id=1,
        clock=VirtualClock(asyncio.get_running_loop()),
        log=log,
        store=MemoryCoordinatorStore(),
        metrics=metrics,
    )
    rules = CommitRules(assignment=Sequential())
    coordinators = Coordinators(services, ShardSettings(counts={DISKLESS: 2, GROUPS: 1}, commit_rules=rules))
    await coordinators.start()
    for shard in coordinators.all():
        await shard.until_leading()
    yield coordinators, metrics
    await coordinators.stop()
    await log.stop()


def test_every_shard_is_exported_and_its_log_is_looked_at_again_and_again() -> None:
    async def main() -> None:
        async with served_shards() as (coordinators, metrics):
            watching = asyncio.create_task(ShardWatch(coordinators, metrics).run())
            await asyncio.sleep(1)
            first = coordinators.diskless[0]

            def exported(name: str, shard: object = first.id) -> float | None:
                return metrics.registry.get_sample_value(f"diskless_{name}", {"shard": str(shard)})

            before = exported("coordinator_log_end_offset")
            await first.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
            await first.commit_file(commit_of("a", batch(producer=(7, 0, 0)), batch(producer=(8, 0, 0))))
            await asyncio.sleep(LOOK_S)

            for shard in coordinators.all():
                assert exported("coordinator_leading", shard.id) == 1
                assert exported("coordinator_log_start_offset", shard.id) == 0
                assert exported("coordinator_log_end_offset", shard.id) == exported(
                    "coordinator_applied_offset", shard.id
                )
            assert before is not None
            assert exported("coordinator_log_end_offset") == first.next_offset > before
            assert exported("coordinator_producers") == 2
            assert exported("coordinator_log_bytes_since_snapshot") == first.applied_bytes
            assert exported("coordinator_snapshot_timestamp_seconds") == 0
            watching.cancel()

    run(main)


def test_a_log_that_brokers_share_is_asked_about_one_shard_at_a_time() -> None:
    async def main() -> None:
        async with served_shards() as (coordinators, metrics):
            asked: list[ShardId] = []
            bounds = coordinators.log.bounds

            async def noted(shard: ShardId) -> LogBounds:
                asked.append(shard)
                return await bounds(shard)

            coordinators.log.bounds = noted  # type: ignore[method-assign]
            watch = ShardWatch(coordinators, metrics)
            shards = sorted(shard.id for shard in coordinators.all())
            await watch.look_at_logs()
            assert sorted(asked) == shards
            asked.clear()
            await watch.look_at_logs()
            assert len(asked) == 1
            for _ in shards[1:]:
                await watch.look_at_logs()
            assert sorted(asked) == shards

    run(main)


def test_a_log_fails_where_no_shard_that_is_asked_about_has_an_answer() -> None:
    async def main() -> None:
        async with served_shards() as (coordinators, metrics):
            watch = ShardWatch(coordinators, metrics)
            await watch.look_at_logs()
            bounds, failing, asked = coordinators.log.bounds, {DISKLESS.shard(0)}, list[ShardId]()

            async def fail_for_some(shard: ShardId) -> LogBounds:
                asked.append(shard)
                if shard in failing:
                    raise CoordinatorLogError("nobody leads this partition")
                return await bounds(shard)

            coordinators.log.bounds = fail_for_some  # type: ignore[method-assign]
            for _ in range(3 * len(coordinators.all())):
                await watch.look_at_logs()  # one shard that has no answer is not the log's failure
            assert set(asked) == {shard.id for shard in coordinators.all()}
            asked.clear()
            await watch.look_at_logs()
            assert DISKLESS.shard(0) in asked  # it is asked about until it has one

            failing.update(shard.id for shard in coordinators.all())
            with pytest.raises(CoordinatorLogError, match="nobody leads"):
                await watch.look_at_logs()
            failing.clear()
            await watch.look_at_logs()

    run(main)


def test_a_log_that_does_not_answer_for_some_shards_keeps_no_other_shard_waiting() -> None:
    async def main() -> None:
        async with served_shards() as (coordinators, metrics):
            bounds = coordinators.log.bounds
            hangs = {shard.id for shard in coordinators.all()} - {GROUPS.shard(0)}
            under_way, most = 0, 0

            async def hang_for_some(shard: ShardId) -> LogBounds:
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                try:
                    if shard in hangs:
                        await asyncio.Event().wait()
                    return await bounds(shard)
                finally:
                    under_way -= 1

            assert len(hangs) > AT_ONCE
            coordinators.log.bounds = hang_for_some  # type: ignore[method-assign]
            watching = asyncio.create_task(ShardWatch(coordinators, metrics).run())
            for _ in range(20):
                await asyncio.sleep(LOOK_S)
                assert coordinators.log_failure is None
            assert most == AT_ONCE
            watching.cancel()

    run(main)


def test_a_defect_in_one_loop_leaves_none_of_the_others_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def broken(_: ShardWatch) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(ShardWatch, "look_at_logs", broken)
        async with served_shards() as (coordinators, metrics):
            before = asyncio.all_tasks()
            with pytest.raises(RuntimeError, match="a defect"):
                await ShardWatch(coordinators, metrics).run()
            assert asyncio.all_tasks() == before

    run(main)
