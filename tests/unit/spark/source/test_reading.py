"""Reading pieces: the batches of all of them, those that were moved included, or a clear error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.layout.partition import PartitionLayout
from diskless_core.plugin.remote_storage import IndexType, RemoteResourceNotFoundError
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.testing.fakes.objects import Operation
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.testing.fakes.remote_storage import Operation as StorageOperation
from diskless_spark.source import planning, reading, times
from diskless_spark.source.decoding import Place
from diskless_spark.source.offsets import Span
from diskless_spark.source.options import SnapshotKind
from diskless_spark.source.reading import (
    PARALLEL_GETS,
    BatchReader,
    DamagePolicy,
    LossPolicy,
    LostRecordsError,
    MisplacedRecordsError,
    segment_gets,
)
from diskless_spark.source.stores import Stores
from tests.support.batches import with_header
from tests.unit.spark.source.worlds import World, with_other_topic


@pytest.fixture
def world() -> World:
    world = World()
    for number in range(6):
        world.put(f"wal/{number}", (0, 3 * number, [10 * number] * 3), (1, 3 * number, [5] * 3))
    return world


@pytest.fixture
def stores(world: World) -> Iterator[Stores]:
    with Stores(world) as stores:
        yield stores


def reader(world: World, stores: Stores, *, fail: bool = True, skip_damaged: bool = False) -> BatchReader:
    return BatchReader(stores, world, LossPolicy(fail=fail), DamagePolicy(skip=skip_damaged))


def pieces(layout: PartitionLayout, start: int = 0, end: int = 10**6) -> list[planning.Piece]:
    return list(planning.pieces(layout, Span(start, end)))


def offsets(batches) -> list[int]:
    """Those of the wanted records."""
    return [
        offset
        for batch in batches
        for offset in range(max(batch.start, batch.header.base_offset), min(batch.end, batch.header.last_offset + 1))
    ]


def test_batches_get_the_offsets_of_their_commit(world, stores):
    assert offsets(reader(world, stores).read(pieces(world.layouts[0], 4, 16))) == list(range(4, 16))


def test_the_time_of_the_commit_where_the_topic_says_so(world, stores):
    world.put("wal/late", (5, 0, [1, 2]), append_time_ms=77)
    (batch,) = reader(world, stores).read(pieces(world.layouts[5]))
    assert (batch.header.is_log_append_time, batch.header.max_timestamp) == (True, 77)


@pytest.mark.parametrize(("start", "end"), [(0, 160), (0, 1), (37, 41), (79, 81), (159, 160)])
async def test_a_part_of_segments_by_their_indexes(world, stores, start, end):
    await world.put_segments(2, 20, 20)
    wanted = pieces(world.layouts[2], start, end)
    found = list(reader(world, stores).read(wanted))
    assert offsets(found) == list(range(start, end))
    read = 0
    for piece in wanted:
        index = await world.storage.fetch_index(piece.segment, IndexType.OFFSET)
        read += sum(get.end - get.start for get in segment_gets(piece, bytes(index)))
    assert read <= sum(len(batch.data) for batch in found) + 1_000 * len(wanted)


async def test_a_segment_has_all_offsets_wherever_its_part_begins_and_ends(world, stores):
    await world.put_segments(2, 20)
    for edge in range(1, 80):
        for start, end in ((max(0, edge - 5), edge), (edge, min(80, edge + 5))):
            assert offsets(reader(world, stores).read(pieces(world.layouts[2], start, end))) == [*range(start, end)]


async def test_what_was_compacted_meanwhile_is_read_from_its_segment(world, stores):
    planned = pieces(world.layouts[0])
    await world.put_segments(0, 6)
    del world.store.objects["wal/3"]
    assert offsets(reader(world, stores).read(planned)) == list(range(18))


def test_what_was_deleted_meanwhile_is_lost(world, stores):
    planned = pieces(world.layouts[0])
    world.layouts[0] = replace(world.layouts[0], start_offset=11)
    del world.store.objects["wal/3"]
    with pytest.raises(LostRecordsError, match="t-0: offsets from 9 on are asked for, but its first one is 11"):
        list(reader(world, stores).read(planned))
    del world.store.objects["wal/2"]
    world.layouts[0] = replace(world.layouts[0], start_offset=12)
    assert offsets(reader(world, stores, fail=False).read(planned)) == [*range(6), *range(12, 18)]


def test_an_object_that_is_missing_although_it_should_be_there_is_an_error(world, stores):
    del world.store.objects["wal/3"]
    with pytest.raises(MisplacedRecordsError, match=r"wal/3.*of t-0 from offset 9 on: have the query use the same"):
        list(reader(world, stores, fail=False).read(pieces(world.layouts[0])))


async def test_a_topic_of_the_same_name_that_was_created_meanwhile_is_another_one(world, stores):
    planned = pieces(world.layouts[0])
    await world.put_segments(2, 20)
    planned_of_segments = pieces(world.layouts[2])
    world.layouts[0] = with_other_topic(world.layouts[0])
    world.layouts[2] = with_other_topic(world.layouts[2])
    del world.store.objects["wal/3"]
    with pytest.raises(LostRecordsError, match="t-0: it does not exist any more"):
        list(reader(world, stores).read(planned))
    assert offsets(reader(world, stores, fail=False).read(planned)) == [*range(9), *range(12, 18)]
    await world.storage.delete(planned_of_segments[0].segment)
    with pytest.raises(LostRecordsError, match="t-2: it does not exist any more"):
        list(reader(world, stores).read(planned_of_segments))


def test_a_topic_that_was_deleted_meanwhile_is_lost(world, stores):
    planned = pieces(world.layouts[0])
    world.layouts = {}
    del world.store.objects["wal/3"]
    with pytest.raises(LostRecordsError, match="t-0: it does not exist any more"):
        list(reader(world, stores).read(planned))
    assert offsets(reader(world, stores, fail=False).read(planned)) == [*range(9), *range(12, 18)]


async def test_what_moved_of_many_partitions_is_asked_for_once_and_read_together(world, stores):
    for number in range(4):
        world.put(f"old/{number}", *[(partition, 3 * number, [0] * 3) for partition in range(10, 60)])
    planned = planning.plan(
        list(world.layouts.values()),
        {Place("t", partition): Span(0, 10**6) for partition in range(10, 60)},
        max_task_bytes=1 << 30,
        min_tasks=1,
    )
    for partition in range(10, 30):
        await world.put_segments(partition, 3)
    for partition in range(30, 60):
        world.layouts[partition] = world.empty(partition)
    for number in range(4):
        world.put(f"new/{number}", *[(partition, 3 * number, [0] * 3) for partition in range(30, 60)])
        del world.store.objects[f"old/{number}"]
    world.store.calls.clear()
    (task,) = planned
    found = list(reader(world, stores).read(task))
    assert world.asked == 1
    assert world.store.calls[Operation.GET] <= PARALLEL_GETS + 4
    assert world.storage.calls[StorageOperation.FETCH_INDEX] == 20
    for partition in range(10, 60):
        assert offsets(batch for batch in found if batch.place.partition == partition) == [*range(12)]


def test_what_else_is_gone_from_the_layouts_is_still_read_where_it_was(world, stores):
    """Its log start is behind it by now, but its objects wait for their deletion."""
    world.put("wal/moved", (7, 0, [0] * 3))
    planned = [*pieces(world.layouts[7]), *pieces(world.layouts[1])]
    world.layouts[7] = world.empty(7)
    del world.store.objects["wal/moved"]
    world.put("wal/compacted", (7, 0, [0] * 3))
    world.layouts[1] = replace(world.layouts[1], start_offset=8)
    found = list(reader(world, stores).read(planned))
    assert offsets(batch for batch in found if batch.place.partition == 7) == [*range(3)]
    assert offsets(batch for batch in found if batch.place.partition == 1) == [*range(18)]


class Forgetful(MemoryRemoteStorage):
    """Has nothing for the reads of these numbers."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.numbers = numbers

    async def fetch(self, metadata, start, end):
        if self.calls[StorageOperation.FETCH] in self.numbers:
            self.calls[StorageOperation.FETCH] += 1
            raise RemoteResourceNotFoundError("not here")
        return await super().fetch(metadata, start, end)


@pytest.mark.parametrize("forgotten", [(0,), (3,), (2, 3, 9, 13)], ids=str)
async def test_no_record_comes_twice_when_a_part_of_a_segment_is_not_found_at_first(monkeypatch, forgotten):
    monkeypatch.setattr(reading, "MAX_GET_BYTES", 400)
    world = World(storage=Forgetful(*forgotten))
    await world.put_segments(2, 20, 20)
    with Stores(world) as stores:
        planned = pieces(world.layouts[2], 3, 157)
        assert offsets(reader(world, stores).read(planned)) == [*range(3, 157)]
    assert world.storage.calls[StorageOperation.FETCH] > 10


async def test_a_loss_is_reported_once(monkeypatch, caplog):
    monkeypatch.setattr(reading, "MAX_GET_BYTES", 400)
    world = World(storage=Forgetful(*range(3, 1_000)))
    await world.put_segments(2, 20, 20)
    with Stores(world) as stores:
        planned = pieces(world.layouts[2])
        world.layouts[2] = replace(world.layouts[2], start_offset=80, segments=[], end_offset=80)
        found = offsets(reader(world, stores, fail=False).read(planned[:1]))
    assert found == [*range(len(found))]
    assert 0 < len(found) < 80
    assert caplog.text.count("records are lost") == 1


async def test_without_a_broker_the_rest_of_a_segment_is_lost_and_others_are_read(monkeypatch, caplog):
    monkeypatch.setattr(reading, "MAX_GET_BYTES", 400)
    world = World(storage=Forgetful(3), kind=SnapshotKind.BUCKET)
    await world.put_segments(2, 20, 20)
    with Stores(world) as stores:
        found = offsets(reader(world, stores, fail=False).read(pieces(world.layouts[2])))
    assert found[-80:] == [*range(80, 160)]
    assert found[:-80] == [*range(len(found) - 80)]
    assert f"offsets {len(found) - 80} to 79 are not at their place" in caplog.text


class Slow(MemoryRemoteStorage):
    """Starts when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_start = threading.Event(), threading.Event()

    async def start(self) -> None:
        self.asked.set()
        await asyncio.to_thread(self.may_start.wait)


async def test_a_read_that_is_given_up_leaves_the_storage_open_for_others():
    world = World(storage=Slow())
    await world.put_segments(2, 20)
    with Stores(world) as stores:
        first = stores.begin(stores.read_segment(world.layouts[2].segments[0], 0, 100))
        world.storage.asked.wait()
        assert first.cancel()
        world.storage.may_start.set()
        assert offsets(reader(world, stores).read(pieces(world.layouts[2]))) == [*range(80)]


def test_without_a_broker_what_is_not_at_its_place_is_lost(world, stores):
    world.kind = SnapshotKind.BUCKET
    del world.store.objects["wal/3"]
    with pytest.raises(LostRecordsError, match="offsets 9 to 11"):
        list(reader(world, stores).read(pieces(world.layouts[0])))
    assert offsets(reader(world, stores, fail=False).read(pieces(world.layouts[0]))) == [*range(9), *range(12, 18)]


def test_a_store_that_is_busy_is_asked_again(world, stores):
    world.store.fail_next(Operation.GET)
    assert offsets(reader(world, stores).read(pieces(world.layouts[0]))) == list(range(18))


@pytest.mark.parametrize("cut", [5, -1])
def test_damage_is_an_error(world, stores, cut):
    data = bytearray(world.store.objects["wal/3"])
    if cut > 0:
        data[-cut] ^= 1
    else:
        del data[cut:]
    world.store.objects["wal/3"] = bytes(data)
    with pytest.raises(CorruptBatchError, match="wal/3"):
        list(reader(world, stores).read(pieces(world.layouts[1])))


@pytest.mark.parametrize("damage", ["checksum", "length"])
def test_a_damaged_batch_of_an_object_is_skipped_when_told_to_and_named(world, stores, caplog, damage):
    world.put("wal/run", (4, 0, [1, 2]), (4, 2, [3]), (4, 3, [4, 5]))
    first, second, third = world.layouts[4].ranges
    run = first._replace(last_offset=4, byte_size=third.byte_offset + third.byte_size - first.byte_offset)
    world.layouts[4] = replace(world.layouts[4], ranges=[run])
    data = bytearray(world.store.objects["wal/run"])
    data[second.byte_offset + (10 if damage == "length" else 65)] ^= 1
    world.store.objects["wal/run"] = bytes(data)
    found = offsets(reader(world, stores, skip_damaged=True).read(pieces(world.layouts[4], 1)))
    assert found == ([1, 3, 4] if damage == "checksum" else [1])
    [record] = caplog.records
    skipped = "t-4, offsets 2 to 2: " if damage == "checksum" else "t-4, offsets 2 to 4: "
    assert f"a damaged batch is skipped: {skipped}" in record.getMessage()
    with pytest.raises(CorruptBatchError, match=r"diskless\.skipDamaged=true"):
        list(reader(world, stores).read(pieces(world.layouts[4])))


async def test_a_damaged_batch_of_a_segment_is_skipped_when_told_to_and_named(world, stores, caplog):
    await world.put_segments(2, 20)
    [(segment_id, stored)] = world.storage.segments.items()
    position, header = list(record_batch.walk(stored.log))[3]
    log = bytearray(stored.log)
    log[position + 65] ^= 1
    stored.log = bytes(log)
    lost = range(header.base_offset, header.last_offset + 1)
    found = offsets(reader(world, stores, skip_damaged=True).read(pieces(world.layouts[2])))
    assert found == [offset for offset in range(80) if offset not in lost]
    assert f"t-2, offsets {lost[0]} to {lost[-1]}: the segment {segment_id.id}" in caplog.text
    with pytest.raises(CorruptBatchError, match="checksum"):
        list(reader(world, stores).read(pieces(world.layouts[2])))
    # Outside of what is wanted, it is no news.
    caplog.clear()
    assert offsets(reader(world, stores, skip_damaged=True).read(pieces(world.layouts[2], 60))) == [*range(60, 80)]
    assert not caplog.records


def test_a_batch_whose_records_are_damaged_is_passed_over_by_a_lookup_by_time(world, stores, caplog):
    world.put("wal/lying", (5, 0, [1, 2]), (5, 2, [3]))
    first, _ = world.layouts[5].ranges
    data = world.store.objects["wal/lying"]
    batch = data[first.byte_offset : first.byte_offset + first.byte_size]
    spoilt = with_header(batch[:61] + bytes(len(batch) - 61))
    world.store.objects["wal/lying"] = data[: first.byte_offset] + spoilt + data[first.byte_offset + len(batch) :]
    skipping = reader(world, stores, skip_damaged=True)
    assert times.first_offset_from(world.layouts[5], 1, stores, skipping) == 2
    assert "t-5, offsets 0 to 1: " in caplog.text
    with pytest.raises(CorruptBatchError, match="t-5, offsets 0 to 1"):
        times.first_offset_from(world.layouts[5], 1, stores, reader(world, stores))


@pytest.mark.parametrize(("time", "offset"), [(0, 0), (1, 3), (30, 9), (31, 12), (50, 15), (51, None)])
def test_records_by_time(world, stores, time, offset):
    assert times.first_offset_from(world.layouts[0], time, stores, reader(world, stores)) == offset


async def test_records_of_segments_by_time(world, stores):
    built = await world.put_segments(2, 20, 20)
    for record in built.records[::13]:
        wanted = next(one.offset for one in built.records if one.timestamp >= record.timestamp)
        assert times.first_offset_from(world.layouts[2], record.timestamp, stores, reader(world, stores)) == wanted


TIMES = st.lists(st.integers(0, 12), min_size=80, max_size=80)


@given(times_of=TIMES, in_order=st.booleans(), by_append=st.booleans(), start=st.integers(0, 70))
@settings(deadline=None, max_examples=25)
def test_in_segments_as_in_a_scan_of_all_records(times_of, in_order, by_append, start):
    world = World()
    stamps = sorted(times_of) if in_order else times_of
    append_time_of = (lambda offset: stamps[offset]) if by_append else None
    built = asyncio.run(world.put_segments(2, 10, 10, time_of=stamps.__getitem__, append_time_of=append_time_of))
    layout = replace(world.layouts[2], start_offset=start, segments=[*built.segments])
    with Stores(world) as stores:
        for time in (0, 1, 5, 6, 11, 12, 13):
            found = (one.offset for one in built.records if one.offset >= start and one.timestamp >= time)
            assert times.first_offset_from(layout, time, stores, reader(world, stores)) == next(found, None)


async def test_the_first_of_several_records_of_one_time(world, stores):
    await world.put_segments(2, 1, time_of=lambda _: 1_000)
    assert times.first_offset_from(world.layouts[2], 1_000, stores, reader(world, stores)) == 0


def test_places_are_told(world, stores):
    (batch, *_) = reader(world, stores).read(pieces(world.layouts[1]))
    assert batch.place == Place("t", 1)
