"""Lookups by time through the tree of blocks, against a walk through all records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.diskless import time_index, trimming
from diskless_core.diskless.commands import ListedOffset, SpecialTimestamp, TimestampType
from diskless_core.diskless.tables import BATCHES, BLOCKS
from diskless_core.diskless.time_index import LEVELS, Block, RunCount, first_at_or_after, greatest_timestamp
from diskless_core.diskless.trimming import trim_page
from diskless_core.plugin.coordinator_store import ShardStore
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import RecordData
from diskless_core.wal.runs import Run
from tests.support.produce_path import RULES, ProducePath, key_of
from tests.support.virtual_time import START_MS, run

ON_BROKER_TIME = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)


@contextmanager
def fan_out(count: int) -> Iterator[None]:
    """Small blocks, so that a few runs make trees of several levels."""
    sizes = tuple(count**level for level in range(1, LEVELS + 1))
    with patch.object(time_index, "FAN_OUT", count), patch.object(time_index, "_SIZES", sizes):
        yield


class Tree:
    """Blocks and runs in lists; counts what is read."""

    def __init__(self, runs: Sequence[Run], blocks: Sequence[tuple[int, Block]]) -> None:
        self._runs = runs
        self._blocks = blocks
        self.read = 0

    def blocks(self, level: int, start: int, end: int) -> list[Block]:
        found = [b for at, b in self._blocks if at == level and b.last_offset >= start and b.base_offset < end]
        self.read += len(found)
        return found

    def runs(self, start: int, end: int) -> list[Run]:
        found = [one for one in self._runs if one.last_offset >= start and one.base_offset < end]
        self.read += len(found)
        return found


def run_of(base_offset: int, count: int, max_timestamp: int) -> Run:
    return Run(base_offset, base_offset + count - 1, "object", 0, 100, 0, max_timestamp, 0)


shapes = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 0, 4]), st.integers(-1, 20)), min_size=1, max_size=120
)


@given(
    shapes=shapes, size=st.integers(2, 4), cut=st.integers(1, 7), start=st.integers(0, 300), wanted=st.integers(-1, 21)
)
def test_the_tree_finds_what_a_walk_finds_and_a_count_can_be_stored_in_between(
    shapes: list[tuple[int, int, int]], size: int, cut: int, start: int, wanted: int
) -> None:
    runs, offset = [], 0
    for count, hole, max_timestamp in shapes:
        offset += hole
        runs.append(run_of(offset, count, max_timestamp))
        offset += count
    with fan_out(size):
        counted, blocks = RunCount(), list[tuple[int, Block]]()
        for first in range(0, len(runs), cut):
            counted, full = time_index.count(counted, runs[first : first + cut])
            counted = time_index.unpack(time_index.pack(counted))
            blocks += full
        live = [one for one in runs if one.last_offset >= start]
        whole = [one for one in live if one.base_offset >= start]
        tree = Tree(live, [(level, block) for level, block in blocks if block.last_offset >= start])
        assert first_at_or_after(tree, wanted, start, offset) == next(
            (one for one in live if one.max_timestamp >= wanted), None
        )
        assert greatest_timestamp(tree, start, offset) == max((one.max_timestamp for one in whole), default=-1)
    assert counted.runs == len(runs)
    assert [level for level, _ in blocks].count(1) == len(runs) // size


def test_a_lookup_reads_a_few_rows_of_each_level_wherever_the_partition_begins() -> None:
    runs = [run_of(number, 1, number * 7 % 1000) for number in range(20_000)]
    _, blocks = time_index.count(RunCount(), runs)
    for start in (0, 1, 31, 32, 1_023, 1_024, 10_001, 19_999):
        for look_up in (
            lambda tree, start=start: first_at_or_after(tree, 999, start, 20_000),
            lambda tree, start=start: first_at_or_after(tree, 1_000, start, 20_000),
            lambda tree, start=start: greatest_timestamp(tree, start, 20_000),
        ):
            tree = Tree(runs, blocks)
            look_up(tree)
            assert tree.read <= 2 * LEVELS * time_index.FAN_OUT


class Known(NamedTuple):
    offset: int
    timestamp: int


objects = st.tuples(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=4), st.booleans()
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), objects),
        st.tuples(st.just("produce"), objects),
        st.tuples(st.just("delete"), st.floats(0, 1)),
        st.tuples(st.just("flush"), st.none()),
        st.tuples(st.just("trim"), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(steps=steps, size=st.integers(2, 3), kept_in_memory=st.sampled_from([1, 1000]))
def test_list_offsets_by_time_answers_as_a_walk_through_the_remaining_records_does(
    steps: list[tuple[str, object]], size: int, kept_in_memory: int
) -> None:
    async def main() -> None:
        async with ProducePath(linger_ms=20) as path:
            path.node.shard._recent._limit = kept_in_memory
            known: list[Known] = []
            for step, what in steps:
                known = await take(path, step, what, known)
                await check(path, known)

    with fan_out(size):
        run(main)


async def take(path: ProducePath, step: str, what: object, known: list[Known]) -> list[Known]:
    shard = path.node.shard
    match step, what:
        case "produce", (list(batches), bool(on_broker_time)):
            return known + await produce(path, batches, on_broker_time=on_broker_time)
        case "delete", float(share) if known:
            offset = known[0].offset + int(share * len(known))
            deleted = await shard.delete_records(key_of(0), offset)
            return [one for one in known if one.offset >= deleted.log_start_offset]
        case "flush", _:
            await shard.flush()
        case "trim", int(page):
            await shard.flush()
            with patch.object(trimming, "PAGE_ROWS", page):
                while (await shard.with_store(lambda store: trim_page(store, 0))).more:
                    pass
            await shard.with_store(assert_trimmed(known[0].offset if known else None))
    return known


def assert_trimmed(log_start_offset: int | None) -> Callable[[ShardStore], None]:
    def look(store: ShardStore) -> None:
        runs, blocks = map(BATCHES.decode, store.scan(BATCHES.name)), map(BLOCKS.decode, store.scan(BLOCKS.name))
        assert log_start_offset is None or all(one.last_offset >= log_start_offset for one in (*runs, *blocks))

    return look


async def produce(path: ProducePath, batches: list[list[int]], *, on_broker_time: bool) -> list[Known]:
    encoded = [
        record_batch.build(
            [RecordData(key=None, value=b"v", timestamp=START_MS + back) for back in backs], timestamp_ms=START_MS
        )
        for backs in batches
    ]
    rules = ON_BROKER_TIME if on_broker_time else RULES
    results = await path.produce(*((0, one) for one in encoded), rules=rules)
    return [
        Known(result.base_offset + delta, result.append_time if on_broker_time else START_MS + back)
        for backs, result in zip(batches, results, strict=True)
        for delta, back in enumerate(backs)
    ]


async def check(path: ProducePath, known: list[Known]) -> None:
    for timestamp in {0, *(one.timestamp + more for one in known for more in (0, 1))}:
        found = next((one for one in known if one.timestamp >= timestamp), None)
        expected = ListedOffset(offset=found.offset, timestamp=found.timestamp) if found else ListedOffset()
        assert await path.lookup.list(path.node.shard, key_of(0), timestamp) == expected
    latest = max(known, key=lambda one: one.timestamp, default=None)
    expected = ListedOffset(offset=latest.offset, timestamp=latest.timestamp) if latest else ListedOffset()
    assert await path.lookup.list(path.node.shard, key_of(0), SpecialTimestamp.MAX_TIMESTAMP) == expected
