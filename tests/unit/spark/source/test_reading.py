"""Reading pieces: the batches of all of them, those that were moved included, or a clear error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from diskless_core.plugin.layout import PartitionLayout
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.testing.fakes.objects import Operation
from diskless_spark.source import planning, times
from diskless_spark.source.decoding import Place
from diskless_spark.source.offsets import Span
from diskless_spark.source.options import SnapshotKind
from diskless_spark.source.reading import BatchReader, LossPolicy, LostRecordsError, MisplacedRecordsError, segment_gets
from diskless_spark.source.stores import Stores
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


def reader(world: World, stores: Stores, *, fail: bool = True) -> BatchReader:
    return BatchReader(stores, world, LossPolicy(fail=fail))


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


@pytest.mark.parametrize(("time", "offset"), [(0, 0), (1, 3), (30, 9), (31, 12), (50, 15), (51, None)])
def test_records_by_time(world, stores, time, offset):
    assert times.first_offset_from(world.layouts[0], time, stores, reader(world, stores)) == offset


async def test_records_of_segments_by_time(world, stores):
    built = await world.put_segments(2, 20, 20)
    for record in built.records[::13]:
        wanted = next(one.offset for one in built.records if one.timestamp >= record.timestamp)
        assert times.first_offset_from(world.layouts[2], record.timestamp, stores, reader(world, stores)) == wanted


def test_places_are_told(world, stores):
    (batch, *_) = reader(world, stores).read(pieces(world.layouts[1]))
    assert batch.place == Place("t", 1)
