"""Leases of the bucket log nominate one node at a time, by each watcher's own clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from diskless_bucket_log.lease_keeper import LEAST_PAUSE_S, RELEASE_PAUSE_S, LeaseKeeper
from diskless_bucket_log.leases import (
    ForgedLeaseError,
    Lease,
    Seen,
    after_reading,
    after_suspicion,
    decode_lease,
    encode_lease,
)
from diskless_bucket_log.objects import Names
from diskless_core.plugin.coordinator_log import LeadershipHint
from diskless_core.testing.coordinator_log_tools import SHARD
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from tests.support import virtual_time
from tests.support.virtual_time import VirtualClock

NAMES = Names("wal-log", SHARD)
LEASE_MS = 9000


class Watched:
    """One node's keeper, and the hint that it gave last."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self.keeper = keeper
        self.hint: LeadershipHint | None = None
        self.generations: list[int] = []
        self._task: asyncio.Task[None] | None = None

    def ask(self, *, candidate: bool = True) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._follow(candidate=candidate))

    async def die(self) -> None:
        """As kill -9 does: nothing is released."""
        for task in (self._task, self.keeper._task):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _follow(self, *, candidate: bool) -> None:
        async for hint in self.keeper.hints(candidate=candidate):
            self.hint = hint
            self.generations.append(hint.generation)


class World:
    """The lease object, and the nodes that watch it."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.store = MemoryWalObjectStore(self.clock)
        self.writes: list[float] = []
        write = self.store._write_if

        async def noted(*args: object) -> str:
            self.writes.append(self.clock.monotonic())
            return await write(*args)  # type: ignore[arg-type]

        self.store._write_if = noted  # type: ignore[method-assign,assignment]

    def node(self, node_id: int, *, candidate: bool = True, release_pause_s: float = RELEASE_PAUSE_S) -> Watched:
        keeper = LeaseKeeper(
            self.store,
            NAMES,
            self.clock,
            node_id=node_id,
            lease_ms=LEASE_MS,
            poll_s=LEASE_MS / 4000,
            release_pause_s=release_pause_s,
        )
        watched = Watched(keeper)
        watched.ask(candidate=candidate)
        return watched


@asynccontextmanager
async def ending(*nodes: Watched) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for node in nodes:
            await node.die()


def on_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        virtual_time.run(test)  # type: ignore[arg-type]

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_virtual_time
async def test_one_candidate_is_nominated_and_everybody_hears_of_the_same() -> None:
    world = World()
    nodes = [world.node(1), world.node(2), world.node(3, candidate=False)]
    async with ending(*nodes):
        await asyncio.sleep(60)
        hints = {node.hint for node in nodes}
        assert len(hints) == 1
        assert hints.pop().node_id in (1, 2)  # type: ignore[union-attr]
        assert all(len(node.generations) <= 2 for node in nodes), "nobody changed his mind"


@on_virtual_time
async def test_a_holder_that_dies_is_followed_within_its_lease_and_one_reading() -> None:
    world = World()
    first = world.node(1)
    await asyncio.sleep(1)
    second = world.node(2)
    async with ending(first, second):
        await asyncio.sleep(20)
        assert second.hint is not None
        assert second.hint.node_id == 1
        before = second.hint.generation
        await first.die()
        await asyncio.sleep(LEASE_MS / 1000 + LEASE_MS / 4000 + 0.1)
        assert second.hint.node_id == 2
        assert second.hint.generation > before


@on_virtual_time
async def test_a_holder_that_is_told_to_have_ended_is_followed_at_once() -> None:
    world = World()
    nodes = [world.node(node_id) for node_id in (1, 2, 3)]
    async with ending(*nodes):
        await asyncio.sleep(20)
        holder = next(node for node in nodes if node.hint and node.keeper._node_id == node.hint.node_id)
        others = [node for node in nodes if node is not holder]
        assert holder.hint is not None
        generation = holder.hint.generation
        await holder.die()
        for node in others:
            node.keeper.suspect(holder.keeper._node_id)
        await asyncio.sleep(0.1)
        hints = {node.hint for node in others}
        assert len(hints) == 1, "one has the lease, and the other one has heard of it"
        [hint] = hints
        assert hint is not None
        assert hint.node_id in [node.keeper._node_id for node in others]
        assert hint.generation > generation


@on_virtual_time
async def test_a_suspicion_of_a_node_that_holds_no_lease_changes_nothing() -> None:
    world = World()
    first = world.node(1)
    await asyncio.sleep(1)
    second = world.node(2)
    async with ending(first, second):
        await asyncio.sleep(20)
        before = second.hint
        writes = len(world.writes)
        second.keeper.suspect(2)
        second.keeper.suspect(3)
        first.keeper.suspect(1)
        await asyncio.sleep(0.1)
        assert second.hint == before == first.hint
        assert len(world.writes) == writes


@on_virtual_time
async def test_a_suspicion_of_a_holder_that_lives_costs_one_change() -> None:
    world = World()
    first = world.node(1)
    await asyncio.sleep(1)
    second = world.node(2)
    async with ending(first, second):
        await asyncio.sleep(20)
        second.keeper.suspect(1)
        await asyncio.sleep(60)
        assert first.hint == second.hint
        assert second.hint is not None
        assert second.hint.node_id == 2
        assert len(set(first.generations)) == 2


def test_a_suspicion_holds_until_the_next_write_of_the_lease() -> None:
    lease = Lease(holder=1, generation=3, nonce="a", duration_ms=9000)
    seen = after_suspicion(after_reading(Seen(), lease, 10.0), 1)
    assert not seen.is_held(10.1)
    assert seen.hint(10.1) == LeadershipHint(None, 3)
    assert not after_reading(seen, lease, 10.2).is_held(10.2)
    assert after_reading(seen, Lease(holder=1, generation=3, nonce="b", duration_ms=9000), 10.2).is_held(10.2)
    assert after_suspicion(after_reading(Seen(), lease, 10.0), 2).is_held(10.1)


@on_virtual_time
async def test_a_node_that_withdraws_is_followed_by_another_one_at_the_next_reading() -> None:
    world = World()
    first = world.node(1)
    await asyncio.sleep(1)
    second = world.node(2)
    async with ending(first, second):
        await asyncio.sleep(20)
        first.ask(candidate=False)
        await asyncio.sleep(RELEASE_PAUSE_S + LEASE_MS / 4000 + 0.1)
        assert second.hint is not None
        assert second.hint.node_id == 2
        await asyncio.sleep(LEASE_MS / 4000 + 0.1)
        assert first.hint == second.hint
        assert first.generations == sorted(first.generations)


@on_virtual_time
async def test_a_node_that_stops_releases_its_lease() -> None:
    world = World()
    first = world.node(1)
    await asyncio.sleep(5)
    await first.keeper.stop()
    assert decode_lease(world.store.objects[NAMES.lease]).holder is None


@on_virtual_time
async def test_a_lease_is_released_at_once_where_writes_cost_nothing() -> None:
    world = World()
    node = world.node(1, release_pause_s=0.0)
    async with ending(node):
        await asyncio.sleep(0.1)
        assert decode_lease(world.store.objects[NAMES.lease]).holder == 1
        node.ask(candidate=False)
        await asyncio.sleep(0.1)
        assert decode_lease(world.store.objects[NAMES.lease]).holder is None


@on_virtual_time
async def test_the_lease_is_written_once_in_two_seconds_at_most_and_with_another_nonce_each_time() -> None:
    world = World()
    node = world.node(1)
    async with ending(node):
        nonces = set[str]()
        for _ in range(40):
            await asyncio.sleep(1)
            nonces.add(decode_lease(world.store.objects[NAMES.lease]).nonce)
    pauses = [after - before for before, after in zip(world.writes, world.writes[1:], strict=False)]
    assert min(pauses) >= LEAST_PAUSE_S
    assert len(nonces) == len(world.writes)
    assert len(nonces) >= 40 / (LEASE_MS / 4000) - 2


@on_virtual_time
async def test_no_node_is_nominated_twice_because_wall_clocks_differ() -> None:
    world = World()
    first = world.node(1)
    await asyncio.sleep(5)
    world.clock.skew_ms = -600_000
    second = world.node(2)
    async with ending(first, second):
        await asyncio.sleep(30)
        assert second.hint is not None
        assert second.hint.node_id == 1
        await first.die()
        await asyncio.sleep(15)
        assert second.hint.node_id == 2
        assert second.generations == sorted(second.generations)


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        b"{}",
        b"not json",
        encode_lease(Lease(holder=9, generation=2**62 + 1, nonce="x", duration_ms=9000)),
        encode_lease(Lease(holder=-9, generation=2, nonce="x", duration_ms=9000)),
        encode_lease(Lease(holder=9, generation=2, nonce="x", duration_ms=2**40)),
        encode_lease(Lease(holder=9, generation=0, nonce="old", duration_ms=9000)),
    ],
)
def test_a_forged_lease_is_replaced_and_nobody_follows_it(forged: bytes) -> None:
    async def main() -> None:
        world = World()
        node = world.node(1)
        async with ending(node):
            await asyncio.sleep(5)
            before = node.hint
            assert before is not None
            world.store.objects[NAMES.lease] = forged
            await asyncio.sleep(10)
            assert decode_lease(world.store.objects[NAMES.lease]).holder == 1
            assert node.hint is not None
            assert node.hint.node_id == 1
            assert node.hint.generation > before.generation

    virtual_time.run(main)


@on_virtual_time
async def test_a_lease_that_cannot_be_renewed_for_a_while_is_kept() -> None:
    world = World()
    node = world.node(1)
    async with ending(node):
        await asyncio.sleep(5)
        before = node.hint
        with world.store.failing(Operation.REPLACE), world.store.failing(Operation.GET_VERSIONED):
            await asyncio.sleep(5)
        await asyncio.sleep(5)
        assert node.hint == before
        assert node.generations == [before.generation if before else None]


def test_a_lease_holds_from_when_its_nonce_was_seen_first() -> None:
    lease = Lease(holder=1, generation=3, nonce="a", duration_ms=1000)
    seen = after_reading(Seen(), lease, 10.0)
    again = after_reading(seen, lease, 10.9)
    assert again.is_held(10.95)
    assert not again.is_held(11.0)
    renewed = after_reading(again, Lease(holder=1, generation=3, nonce="b", duration_ms=1000), 10.9)
    assert renewed.is_held(11.8)


def test_a_lease_is_read_as_it_was_written() -> None:
    lease = Lease(holder=None, generation=5, nonce="abc", duration_ms=9000)
    assert decode_lease(memoryview(encode_lease(lease))) == lease
    with pytest.raises(ForgedLeaseError):
        decode_lease(encode_lease(lease).replace(b'"version": 1', b'"version": 2'))
