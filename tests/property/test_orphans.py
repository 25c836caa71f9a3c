"""No object is deleted that was or will be committed, and every orphan is in the end (KIP-1164, "Orphan files").

Whatever clocks say, however late uploads and commits are answered, whoever scans, leads, crashes or is given up, and
whatever the log does. The same stories find out each of the safeguards that is taken away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diskless_core.diskless import operations
from diskless_core.diskless.shard import DisklessShard
from diskless_core.files import orphans
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import AppendFault
from diskless_core.testing.fakes.objects import Operation
from tests.support.guarantees import guarantee
from tests.support.orphan_world import GRACE_MS, LEADERS, OUTSIDER, PARTITIONS, SHARDS, World
from tests.support.virtual_time import run

MINUTE_MS = 60_000
DAY_MS = 86_400_000
LEADER_SKEWS_MS = (0, 0, 10_000, -10_000, 10 * MINUTE_MS, -10 * MINUTE_MS)
OUTSIDER_SKEWS_MS = (0, -2 * GRACE_MS, 2 * GRACE_MS, 3 * DAY_MS, -3 * DAY_MS)
WAYS_S = (*(0.0,) * 6, 0.001, 0.5, 20.0, GRACE_MS / 1000)
ANSWERS_S = (0.0, 0.5, 3 * GRACE_MS / 1000)
PAUSES_S = (0.0, 0.002, 0.1, 5.0, GRACE_MS / 1000, GRACE_MS / 1000 + 1)
WEIGHTS = {
    "produce": 10,
    "scan": 8,
    "expire": 5,
    "tidy": 3,
    "start": 3,
    "kill": 1,
    "give up scans": 1,
    "two hints": 1,
    "depose unnoticed": 1,
    "agree": 2,
    "fail append": 1,
    "lose an answer": 1,
    "fail bucket": 1,
}
STEPS = 30
SEEDS = range(40)


def play(seed: int, steps: int = STEPS) -> None:
    """Run the first steps of a story, and then to its end.

    Raises:
        AssertionError: an object went that must not go, or one stayed for ever.
    """

    random = Random(seed)

    async def main() -> None:
        skews_ms = [*(random.choice(LEADER_SKEWS_MS) for _ in LEADERS), random.choice(OUTSIDER_SKEWS_MS)]
        world = World(random, skews_ms, WAYS_S, ANSWERS_S)
        await world.start()
        for _ in range(steps):
            await step(world, random)
            await asyncio.sleep(random.choice(PAUSES_S))
        await world.settle()

    run(main)


async def step(world: World, random: Random) -> None:
    node_id = random.choice((*LEADERS, OUTSIDER))
    broker = world.brokers[node_id]
    shard = DISKLESS.shard(random.randrange(SHARDS))
    match random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]:
        case "produce" if broker.alive:
            broker.produce(random.sample(range(PARTITIONS), random.randrange(1, PARTITIONS)))
        case "scan" if broker.alive:
            broker.begin_scan()
        case "tidy" if broker.alive:
            broker.begin_tidying()
        case "give up scans":
            broker.give_up_scans()
        case "kill" if broker.alive:
            await broker.kill()
        case "start" if not broker.alive:
            await broker.start()
        case "two hints":
            await two_hints(world, shard, random)
        case "depose unnoticed":
            await depose_unnoticed(world, shard, random)
        case "agree":
            world.agree(random.choice(LEADERS))
        case "fail append":
            world.shared.fail_next_append(random.choice(list(AppendFault)), shard=shard)
            world.shared.land_late_appends(shard)
        case "lose an answer":
            world.answers_to_lose += 1
        case "fail bucket":
            world.bucket.fail_next(random.choice(list(Operation)), takes_effect=random.random() < 0.5)
        case "expire":
            for partition in range(PARTITIONS):
                await world.expire(partition)


async def two_hints(world: World, shard: ShardId, random: Random) -> None:
    """Another node leads soon; until all have heard of that, both claim the shard."""
    leader = random.choice(LEADERS)
    world.shared.set_leader(shard, leader, seen_by=[leader])
    await asyncio.sleep(random.choice([0.0, 0.01, 2.0]))
    world.shared.set_leader(shard, leader)


async def depose_unnoticed(world: World, shard: ShardId, random: Random) -> None:
    """The leader hears nothing any more, while another one is elected."""
    deaf, leader = random.sample(LEADERS, 2)
    world.agree(deaf)
    await asyncio.sleep(1)
    world.shared.pause_reads(deaf)
    world.shared.set_leader(shard, leader, seen_by=[leader])


@guarantee(
    "Deletion and retention",
    "No object is taken for an orphan that was committed or can still be, whatever clocks say and whoever crashes.",
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(1, STEPS))
def test_no_object_goes_that_is_or_can_be_committed_and_every_orphan_does(seed: int, steps: int) -> None:
    play(seed, steps)


def fails(seed: int) -> bool:
    try:
        play(seed)
    except AssertionError:
        return True
    return False


def without_a_horizon(patch: pytest.MonkeyPatch) -> None:
    async def raise_horizon(_shard: DisklessShard, _horizon_ms: int) -> None:
        return

    patch.setattr(DisklessShard, "raise_horizon", raise_horizon)


def by_the_scanning_brokers_clock_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orphans, "threshold_ms", lambda _oldest, grace_ms, passed: max(0, passed.now_ms - grace_ms))
    patch.setattr(operations, "HORIZON_AGE_MS", -(10**15))


def without_asking_what_is_known(patch: pytest.MonkeyPatch) -> None:
    async def describe_files(_shard: DisklessShard, _object_keys: object) -> dict[str, bool]:
        return {}

    patch.setattr(DisklessShard, "describe_files", describe_files)


def without_looking_at_the_whole_bucket(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orphans, "_chunks", lambda keys: [keys[1:]])


@pytest.mark.parametrize(
    "take_away",
    [
        without_a_horizon,
        by_the_scanning_brokers_clock_alone,
        without_asking_what_is_known,
        without_looking_at_the_whole_bucket,
    ],
)
def test_each_safeguard_is_missed_when_it_is_taken_away(
    take_away: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        take_away(patch)
        failing = next((seed for seed in SEEDS if fails(seed)), None)
    assert failing is not None
    play(failing)
