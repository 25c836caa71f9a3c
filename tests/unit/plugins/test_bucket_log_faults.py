"""The bucket log when its object store loses answers, is late, was meddled with, or is no such store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from diskless_bucket_log import view
from diskless_bucket_log.bucket_log import BucketLog
from diskless_bucket_log.config import BucketLogSettings
from diskless_bucket_log.objects import MAX_ENTRY_BYTES, NO_DIGEST, Names, encode_entry
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    EntryRefusedError,
    LogBatch,
    LogOffsetPrunedError,
)
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStore, WalObjectStoreError
from diskless_core.testing.coordinator_log_tools import SHARD, batch_of, read_all, read_batches, same_content
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from tests.support import virtual_time
from tests.support.virtual_time import VirtualClock

NAMES = Names("wal-log", SHARD)
A, B, C, D = (batch_of(value) for value in (b"a", b"b", b"c", b"d"))


class World:
    """One store, and the logs of some brokers over it, on virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.store = MemoryWalObjectStore(self.clock)

    @asynccontextmanager
    async def log(
        self, node_id: int = 1, *, check_rounds: int = 0, **settings: object
    ) -> AsyncIterator[CoordinatorLog]:
        log = make_log(self.clock, self.store, node_id, check_rounds=check_rounds, **settings)
        await log.start()
        try:
            yield log
        finally:
            await log.stop()


def make_log(
    clock: VirtualClock, store: WalObjectStore | None, node_id: int = 1, *, check_rounds: int = 0, **settings: object
) -> BucketLog:
    context = PluginContext(
        node_id=node_id,
        data_dir=Path("unused"),
        log_dir=Path("unused"),
        clock=clock,
        object_store=None if store is None else lambda: store,
        object_prefix="wal",
    )
    return BucketLog(context, BucketLogSettings.model_validate(settings), check_rounds=check_rounds)


def test_an_append_whose_answer_is_lost_is_there_once() -> None:
    async def main() -> None:
        world = World()
        async with world.log() as log:
            await log.append(SHARD, [A])
            world.store.fail_next(Operation.CREATE, takes_effect=True)
            await log.append(SHARD, [B])
            await log.append(SHARD, [C])
            assert same_content(await read_all(log, SHARD), [A, B, C])

    virtual_time.run(main)


def test_an_append_that_the_store_did_not_take_is_put_again_and_its_late_put_harms_nothing() -> None:
    async def main() -> None:
        world = World()
        async with world.log() as log:
            await log.append(SHARD, [A])
            world.store.be_late(Operation.CREATE)
            await log.append(SHARD, [B])
            world.store.late.popleft()()
            await log.append(SHARD, [C])
            assert same_content(await read_all(log, SHARD), [A, B, C])

    virtual_time.run(main)


def test_an_append_that_another_broker_overtook_comes_after_it() -> None:
    async def main() -> None:
        world = World()
        async with world.log(1) as one, world.log(2) as two:
            await one.append(SHARD, [A])
            await two.append(SHARD, [B])
            assert (await one.append(SHARD, [C])) == [2]
            for log in (one, two):
                assert same_content(await read_batches(log, SHARD, 0, 3), [A, B, C])

    virtual_time.run(main)


def test_a_leader_paused_before_its_put_while_others_write_and_prune_past_it_learns_that_nobody_knows() -> None:
    """The object lands at a number that was in use before. It is no entry, and its writer must not say that it is."""

    async def main() -> None:
        world = World()
        async with world.log(1) as paused, world.log(2) as other:
            await paused.append(SHARD, [A])
            reached, released = asyncio.Event(), asyncio.Event()
            create = world.store.create

            async def paused_create(key: str, data: ObjectData) -> str:
                world.store.create = create  # type: ignore[method-assign] # the other one's puts are not paused
                reached.set()
                await released.wait()
                return await create(key, data)

            world.store.create = paused_create  # type: ignore[method-assign]
            waiting = asyncio.create_task(paused.append(SHARD, [batch_of(b"late")]))
            await reached.wait()
            await other.append(SHARD, [B])
            await other.append(SHARD, [C])
            await other.prune(SHARD, 2)
            assert NAMES.entry(1) not in world.store.objects
            released.set()
            with pytest.raises(CoordinatorLogError, match="pruned") as failed:
                await waiting
            assert not isinstance(failed.value, EntryRefusedError)
            assert NAMES.entry(1) in world.store.objects, "the put has landed"
            await paused.append(SHARD, [D])
            for log in (paused, other):
                assert same_content(await read_batches(log, SHARD, 2, 2), [C, D])
                with pytest.raises(LogOffsetPrunedError):
                    await read_batches(log, SHARD, 1, 1)
            await other.prune(SHARD, 3)
            assert NAMES.entry(1) not in world.store.objects, "what came too late is pruned too"

    virtual_time.run(main)


def test_an_append_to_a_store_that_is_away_ends_within_30_seconds_and_reads_of_what_is_known_go_on() -> None:
    async def main() -> None:
        world = World()
        async with world.log() as log:
            await log.append(SHARD, [A])
            with world.store.hold(Operation.CREATE), world.store.hold(Operation.GET):
                before = world.clock.monotonic()
                with pytest.raises(CoordinatorLogError) as failed:
                    await log.append(SHARD, [B])
                assert world.clock.monotonic() - before <= 30
                assert not isinstance(failed.value, EntryRefusedError)
                assert same_content(await read_batches(log, SHARD, 0, 1), [A])
            await log.append(SHARD, [C])
            entries = await read_all(log, SHARD)
            assert same_content(entries, [A, C]) or same_content(entries, [A, B, C])

    virtual_time.run(main)


def test_batches_of_one_call_that_do_not_fit_into_one_object_are_split_in_order() -> None:
    async def main() -> None:
        world = World()
        batches = [batch_of(b"%d" % number + bytes(1_500_000)) for number in range(7)]
        async with world.log() as log:
            assert await log.append(SHARD, batches) == list(range(7))
        async with world.log(2) as log:
            assert same_content(await read_all(log, SHARD), batches)
        assert sum(NAMES.number_of(key) is not None for key in world.store.objects) == 4

    virtual_time.run(main)


def test_a_batch_too_large_is_refused_and_what_comes_before_it_is_appended() -> None:
    async def main() -> None:
        world = World()
        async with world.log() as log:
            with pytest.raises(EntryRefusedError) as refused:
                await log.append(SHARD, [A, batch_of(bytes(MAX_ENTRY_BYTES)), B])
            assert refused.value.position == 1
            assert same_content(await read_all(log, SHARD), [A])

    virtual_time.run(main)


def test_puts_of_a_shard_keep_the_linger_time_apart_and_take_together_what_waits() -> None:
    async def main() -> None:
        world = World()
        async with world.log(**{"linger.ms": 250}) as log:
            before = world.clock.monotonic()
            await log.append(SHARD, [A])
            assert world.clock.monotonic() - before < 0.01, "the first one has nothing to wait for"
            await asyncio.gather(*(log.append(SHARD, [batch]) for batch in (B, C, D)))
            assert world.clock.monotonic() - before == pytest.approx(0.25, abs=0.01)
        assert world.store.calls[Operation.CREATE] == 3, "two entries, and the log start"

    virtual_time.run(main)


def _missing_start(objects: dict[str, bytes]) -> str:
    del objects[NAMES.start]
    return NAMES.start


def _cut_short(objects: dict[str, bytes]) -> str:
    objects[NAMES.entry(1)] = objects[NAMES.entry(1)][:-1]
    return NAMES.entry(1)


def _swapped(objects: dict[str, bytes]) -> str:
    objects[NAMES.entry(1)] = objects[NAMES.entry(0)]
    return NAMES.entry(1)


def _missing(objects: dict[str, bytes]) -> str:
    del objects[NAMES.entry(1)]
    return NAMES.entry(1)


def _of_another_log(objects: dict[str, bytes]) -> str:
    objects[NAMES.entry(1)] = encode_entry(SHARD, 1, 1, bytes(16), NO_DIGEST, [B])[1]
    return NAMES.entry(1)


async def read_until_it_fails(log: CoordinatorLog, read: list[LogBatch]) -> None:
    async for batches in log.read(SHARD, 0):
        read.extend(batches)


def test_a_read_that_is_under_way_when_the_log_stops_ends_without_an_error() -> None:
    async def main() -> None:
        world = World()
        async with world.log() as log:
            await log.append(SHARD, [A])
        reached, stopped = asyncio.Event(), asyncio.Event()

        async def get(key: str, start: int, end: int) -> ObjectData:
            reached.set()
            await stopped.wait()
            raise WalObjectStoreError("the store is stopped", retriable=False)

        async with world.log(2) as log:
            world.store.get = get  # type: ignore[method-assign]
            reading = asyncio.create_task(_exhaust(log.read(SHARD, 0)))
            await reached.wait()
        stopped.set()
        await asyncio.wait_for(reading, 60)

    virtual_time.run(main)


async def _exhaust(iterator: AsyncIterator[object]) -> None:
    async for _ in iterator:
        pass


@pytest.mark.parametrize("meddle", [_missing_start, _cut_short, _swapped, _missing, _of_another_log])
def test_what_was_damaged_or_taken_away_is_named_and_nothing_is_skipped(
    meddle: Callable[[dict[str, bytes]], str],
) -> None:
    async def main() -> None:
        world = World()
        async with world.log() as log:
            for batch in (A, B, C):
                await log.append(SHARD, [batch])
        key = meddle(world.store.objects)
        async with world.log(2) as log:
            read = list[LogBatch]()
            with pytest.raises(CoordinatorLogError, match=key):
                await read_until_it_fails(log, read)
            assert same_content(read, [A][: len(read)])

    virtual_time.run(main)


def test_a_log_start_that_vanishes_stops_appends_too() -> None:
    async def main() -> None:
        world = World()
        async with world.log() as log:
            await log.append(SHARD, [A])
            del world.store.objects[NAMES.start]
            with pytest.raises(CoordinatorLogError, match="log start"):
                await log.append(SHARD, [B])

    virtual_time.run(main)


def test_pruning_moves_the_log_start_though_its_answer_is_lost() -> None:
    async def main() -> None:
        world = World()
        async with world.log() as log:
            for batch in (A, B, C):
                await log.append(SHARD, [batch])
            world.store.fail_next(Operation.REPLACE, takes_effect=True)
            await log.prune(SHARD, 2)
            assert (await log.bounds(SHARD)).start == 2
            numbers = {NAMES.number_of(key) for key in world.store.objects} - {None}
            assert numbers == {2}
        async with world.log(2) as log:
            assert await log.append(SHARD, [D]) == [3]
            assert same_content(await read_all(log, SHARD), [C, D])

    virtual_time.run(main)


def test_a_store_that_does_not_write_on_condition_is_refused_with_what_to_do() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        plain = WalObjectStore.__new__(_plain_store())
        for store, said in ((plain, "choose an S3 or GCS bucket"), (None, "no wal_object_store")):
            with pytest.raises(CoordinatorLogError, match=said):
                await make_log(clock, store).start()

    virtual_time.run(main)


def test_a_store_that_lets_two_writers_win_is_refused_at_the_start() -> None:
    class Careless(MemoryWalObjectStore):
        def _require(self, key: str, expected: str | None) -> None:
            """It takes the condition, and does not look."""

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        with pytest.raises(CoordinatorLogError, match="wal_object_store"):
            await make_log(clock, Careless(clock), check_rounds=2).start()

    virtual_time.run(main)


def _plain_store() -> type[WalObjectStore]:
    methods = {name: getattr(MemoryWalObjectStore, name) for name in WalObjectStore.__abstractmethods__}
    return type("Plain", (WalObjectStore,), methods)


def test_what_a_log_that_is_never_pruned_takes_in_memory_is_bounded_and_all_of_it_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view, "_MAX_HEADERS", 8)
    monkeypatch.setattr(view, "_CACHE_BYTES", 1)

    async def main() -> None:
        world = World()
        batches = [batch_of(b"%d" % number) for number in range(40)]
        async with world.log() as log:
            for batch in batches:
                await log.append(SHARD, [batch])
            known = log._running.view(SHARD)  # type: ignore[attr-defined]
            assert len(known._headers) <= 8
            for offset in (0, 17, 31, 32, 39):
                assert same_content(await read_batches(log, SHARD, offset, 40 - offset), batches[offset:])
            assert len(known._headers) <= 8
            await log.prune(SHARD, 20)
            assert (await log.bounds(SHARD)).start == 20

    virtual_time.run(main)


@pytest.mark.parametrize("request_name", ["get_versioned", "get", "replace", "list"])
def test_a_broker_that_stood_still_while_it_pruned_takes_nothing_from_a_log_that_was_begun_anew(
    request_name: str,
) -> None:
    """The cluster was moved to another log and back, and the log that was left was deleted in between."""

    async def main() -> None:
        world = World()
        async with world.log(1) as old:
            for batch in (A, B, C, D):
                await old.append(SHARD, [batch])
            reached, released = asyncio.Event(), asyncio.Event()
            request = getattr(world.store, request_name)

            def pause(*arguments: Any) -> Any:
                setattr(world.store, request_name, request)  # those of other brokers are not paused

                async def paused() -> Any:
                    reached.set()
                    await released.wait()
                    return await request(*arguments)

                async def paused_pages() -> AsyncIterator[Any]:
                    reached.set()
                    await released.wait()
                    async for page in request(*arguments):
                        yield page

                return paused_pages() if request_name == "list" else paused()

            setattr(world.store, request_name, pause)
            pruning = asyncio.create_task(old.prune(SHARD, 3))
            await reached.wait()
            world.store.objects.clear()
            async with world.log(2) as new:
                for batch in (B, C, D, A, B):
                    await new.append(SHARD, [batch])
                begun = dict(world.store.objects)
                released.set()
                with pytest.raises(CoordinatorLogError):
                    await pruning
                assert {key: found for key, found in world.store.objects.items() if "lease" not in key} == begun
                assert same_content(await read_all(new, SHARD), [B, C, D, A, B])

    virtual_time.run(main)


def test_what_a_broker_has_read_of_a_log_is_freed_when_it_reads_no_more_and_a_new_reader_misses_nothing() -> None:
    async def main() -> None:
        world = World()
        async with world.log() as leader, world.log(2) as other:
            assert isinstance(other, BucketLog)
            await leader.append(SHARD, [A])
            async with aclosing(other.read(SHARD, 0)) as first, aclosing(other.read(SHARD, 0)) as second:
                await anext(first)
                await anext(second)
                await first.aclose()
                await asyncio.sleep(2 * view.RELEASE_S)
                assert kept_objects(other) == 1, "another reader still reads"
            assert kept_objects(other) == 1, "a reader that failed may come back"
            await asyncio.sleep(2 * view.RELEASE_S)
            assert kept_objects(other) == 0
            await leader.append(SHARD, [B])
            assert (await other.bounds(SHARD)).end == 2
            assert kept_objects(other) == 0, "nothing reads what the bounds do not need"
            assert same_content(await read_batches(other, SHARD, 0, 2), [A, B])
            await leader.append(SHARD, [C])
            assert same_content(await read_batches(other, SHARD, 0, 3), [A, B, C])
            assert kept_objects(other) > 0

    virtual_time.run(main)


def kept_objects(log: BucketLog) -> int:
    assert log._running is not None
    kept = log._running.view(SHARD)
    assert bool(kept._recent) == bool(kept._recent_bytes)
    return len(kept._recent)
