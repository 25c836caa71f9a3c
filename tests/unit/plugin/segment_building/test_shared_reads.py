"""Reads of WAL objects for several partitions: in bounded memory, shared, and never waiting for each other for ever."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.plugin.segment_building.reads import SharedReads, pieces
from diskless_core.plugin.segment_building.stream import _ReadAhead
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_core.wal.runs import Run
from tests.support.virtual_time import VirtualClock, run

OBJECT_BYTES = 100


def range_at(key: str, start: int, size: int) -> Run:
    return Run(0, 0, key, start, size, 0, 0, 0)


def object_bytes(number: int) -> bytes:
    return bytes((number * 31 + index) % 256 for index in range(OBJECT_BYTES))


def store(objects: int) -> MemoryWalObjectStore:
    made = MemoryWalObjectStore(VirtualClock(asyncio.get_running_loop()))
    made.objects = {f"o{number}": object_bytes(number) for number in range(objects)}
    return made


class Measured(SharedReads):
    """Notes the most that was taken at once."""

    most = 0

    async def read(self, piece, turn):
        found = await super().read(piece, turn)
        self.most = max(self.most, self.used_bytes)
        return found


async def consume(reads: SharedReads, ranges: list[Run], *, parallel: int, pause_s: float = 0.0) -> bytes:
    ahead = _ReadAhead(pieces(ranges, 40), reads, parallel_reads=parallel)
    found = bytearray()
    try:
        while (one := await ahead.next()) is not None:
            _, view = one
            await asyncio.sleep(pause_s)
            found += view
            view[:] = bytes(len(view))  # the buffer is the reader's own
    finally:
        await ahead.close()
    return bytes(found)


@settings(deadline=None, max_examples=80)
@given(
    partitions=st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(1, 20)), max_size=12), min_size=1, max_size=5
    ),
    budget=st.integers(1, 120),
    parallel=st.integers(1, 4),
    pauses=st.lists(st.sampled_from([0.0, 1.0, 7.0]), min_size=5, max_size=5),
    delay=st.sampled_from([0.0, 3.0]),
)
def test_everybody_gets_his_bytes_within_the_budget(partitions, budget, parallel, pauses, delay) -> None:
    async def main() -> None:
        objects = store(5)
        objects.delay(Operation.GET, delay)
        at = dict.fromkeys(range(5), 0)
        wanted: list[list[Run]] = []
        for partition in partitions:
            ranges = []
            for number, size in sorted(partition):
                if at[number] + size <= OBJECT_BYTES:
                    ranges.append(range_at(f"o{number}", at[number], size))
                    at[number] += size
            wanted.append(ranges)
        reads = Measured(objects, buffer_max_bytes=budget, read_max_bytes=40)
        found = await asyncio.gather(
            *(
                consume(reads, ranges, parallel=parallel, pause_s=pause)
                for ranges, pause in zip(wanted, pauses, strict=False)
            )
        )
        for ranges, data in zip(wanted, found, strict=True):
            parts = [objects.objects[one.object_key][one.byte_offset :][: one.byte_size] for one in ranges]
            assert data == b"".join(parts)
        assert reads.most <= max(budget, 40)
        assert reads.used_bytes == 0

    run(main)


def test_neighbours_in_an_object_are_read_once() -> None:
    async def main() -> None:
        objects = store(3)
        reads = SharedReads(objects, buffer_max_bytes=1000, read_max_bytes=100)
        wanted = [[range_at(f"o{number}", 25 * part, 25) for number in range(3)] for part in range(4)]
        await asyncio.gather(*(consume(reads, ranges, parallel=1) for ranges in wanted))
        assert objects.calls[Operation.GET] == 3

    run(main)


def test_a_reader_that_gives_up_leaves_no_memory_behind() -> None:
    async def main() -> None:
        objects = store(3)
        reads = SharedReads(objects, buffer_max_bytes=60, read_max_bytes=100)
        others = [range_at(f"o{number}", 50, 20) for number in range(3)]
        with objects.hold(Operation.GET) as hold:
            first = asyncio.create_task(consume(reads, [range_at("o0", 0, 50), range_at("o1", 0, 30)], parallel=2))
            second = asyncio.create_task(consume(reads, others, parallel=2))
            await hold.reached()
            ahead = _ReadAhead(pieces([range_at("o2", 0, 40)], 40), reads, parallel_reads=1)
            third = asyncio.create_task(ahead.next())
            await asyncio.sleep(1)
            third.cancel()
            await asyncio.gather(third, return_exceptions=True)
            await ahead.close()
            hold.release()
            await asyncio.gather(first, second)
        assert reads.used_bytes == 0

    run(main)


def test_a_failed_read_is_the_readers_own_and_the_neighbours_try_for_themselves() -> None:
    async def main() -> None:
        objects = store(1)
        reads = SharedReads(objects, buffer_max_bytes=1000, read_max_bytes=100)
        objects.fail_next(Operation.GET)
        outcomes = await asyncio.gather(
            *(consume(reads, [range_at("o0", 50 * part, 50)], parallel=1) for part in range(2)),
            return_exceptions=True,
        )
        assert [isinstance(outcome, Exception) for outcome in outcomes] == [True, False]
        assert outcomes[1] == object_bytes(0)[50:]
        assert reads.used_bytes == 0

    run(main)


@pytest.mark.parametrize(("max_bytes", "sizes"), [(100, [30, 5]), (20, [20, 10, 5]), (1, [10, 10, 10, 5])])
def test_adjacent_ranges_are_read_together(max_bytes, sizes) -> None:
    ranges = [range_at("o", 0, 10), range_at("o", 10, 10), range_at("o", 20, 10), range_at("p", 30, 5)]
    assert [piece.size for piece in pieces(ranges, max_bytes)] == sizes
