"""A shard whose store fails for long: it is opened again, and what it may not have is not passed over."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.shard_store import FLUSH_INTERVAL_S, REOPEN_AFTER, RETRY
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import FILES
from diskless_core.plugin.coordinator_log import LogOffsetPrunedError
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStoreError, ShardStore, TableSpec
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin_host.guarded import guarded
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import TOPIC, ShardNode, batch, commit_of, row_of
from tests.support.virtual_time import VirtualClock, run


class VendorStore(CoordinatorStore):
    """Raises its library's errors. What a shard has opened breaks for good with `break_handle`; the next one works.

    Attributes:
        opened: how often the store was.
    """

    def __init__(self) -> None:
        self.content = MemoryCoordinatorStore()
        self.opened = 0
        self.refusals = 0
        self._handle: ShardStore

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        if self.refusals:
            self.refusals -= 1
            raise sqlite3.OperationalError("unable to open database file")
        self.opened += 1
        self._handle = self.content.open(shard, tables)
        return self._handle

    def break_handle(self) -> None:
        def broken(*_: Any, **__: Any) -> Any:
            raise sqlite3.OperationalError("disk I/O error")

        for name in ("applied_offset", "get", "scan", "write", "close"):
            setattr(self._handle, name, broken)


async def started(store: VendorStore) -> ShardNode:
    node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
    node.store = guarded("coordinator_store", "vendor", store, ())
    await node.start()
    await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
    await node.commit(commit_of("a", batch()))
    await until(lambda: node.shard.unflushed_rows == 0)
    return node


async def until(condition: Callable[[], bool]) -> None:
    """In virtual time, and not for ever."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it does not become so")


@pytest.mark.parametrize("refusals", [0, 5])
def test_a_store_whose_handle_is_broken_is_opened_again_and_the_shard_lives_on(refusals: int) -> None:
    async def main() -> None:
        store = VendorStore()
        node = await started(store)
        store.break_handle()
        store.refusals = refusals
        [result] = await asyncio.wait_for(node.commit(commit_of("b", batch())), 600)
        assert result.base_offset == 1
        await until(lambda: node.shard.unflushed_rows == 0)
        assert store.opened == 2
        assert node.shard.failure is None
        for key in ("a", "b"):
            assert await row_of(node.shard, FILES, (key,)) is not None
        await node.stop()

    run(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_broken_handle_holds_up_commits_for_some_seconds_only(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = VendorStore()
        node = await started(store)
        drawn = random.Random(seed)
        monkeypatch.setattr(node.clock, "random", lambda: drawn)
        loop = asyncio.get_running_loop()
        store.break_handle()
        broken_at = loop.time()
        await asyncio.wait_for(node.commit(commit_of("b", batch())), 600)
        assert loop.time() - broken_at < REOPEN_AFTER * (1.5 * RETRY.first_ms / 1000 + FLUSH_INTERVAL_S) + 1
        await node.stop()

    run(main)


def test_reads_that_fail_are_enough_for_a_store_to_be_opened_again() -> None:
    async def main() -> None:
        store = VendorStore()
        node = await started(store)
        store.break_handle()
        with pytest.raises(CoordinatorStoreError, match=r"coordinator_store.vendor raised OperationalError: disk I/O"):
            await row_of(node.shard, FILES, ("a",))
        await until(lambda: store.opened == 2)
        assert await row_of(node.shard, FILES, ("a",)) is not None
        await node.stop()

    run(main)


def test_a_store_that_came_back_with_less_ends_the_shard_and_is_filled_by_the_next_start() -> None:
    async def main() -> None:
        store = VendorStore()
        node = await started(store)
        store.break_handle()
        store.content = MemoryCoordinatorStore()
        with pytest.raises(CoordinatorStoreError):
            await row_of(node.shard, FILES, ("a",))
        await until(lambda: node.shard.failure is not None)
        assert "restart the broker, which fills it from the log" in str(node.shard.failure)
        with pytest.raises(CoordinatorStoreError, match="not open"):
            await row_of(node.shard, FILES, ("a",))
        with pytest.raises(CoordinatorError):
            await node.shard.commit_file(commit_of("c", batch()))
        await node.stop()
        await node.start()
        assert [run.object_key for run in await node.read_all(PartitionKey(TOPIC, 0))] == ["a"]
        await node.stop()

    run(main)


def test_a_store_is_not_opened_again_while_a_snapshot_is_taken_of_it() -> None:
    async def main() -> None:
        store = VendorStore()
        node = await started(store)
        thread = node.shard._replica.store
        with thread.lent():
            store.break_handle()
            with pytest.raises(CoordinatorStoreError):
                await row_of(node.shard, FILES, ("a",))
            await asyncio.sleep(60)
            assert store.opened == 1
        await until(lambda: store.opened == 2)
        await node.stop()

    run(main)


def test_a_store_whose_handle_breaks_while_a_snapshot_is_loaded_is_opened_again() -> None:
    async def main() -> None:
        store = VendorStore()
        node = await started(store)
        shard = node.shard
        store.break_handle()

        async def restore(_: object) -> None:
            await shard._replica.flusher.suspend()
            await shard._replica.store.read(lambda opened: opened.applied_offset())
            shard._replica.flusher.resume()

        shard._replica.restore = restore  # type: ignore[method-assign]
        await asyncio.wait_for(shard._restore(LogOffsetPrunedError("pruned")), 600)
        assert store.opened == 2
        await node.kill()

    run(main)
