"""Tasks: everything once, in order, as many bytes in each, one read for neighbours in an object."""

from __future__ import annotations

from collections import defaultdict

import pytest

from diskless_spark.source import planning
from diskless_spark.source.decoding import Place
from diskless_spark.source.offsets import Span
from tests.unit.spark.source.worlds import World


@pytest.fixture
async def world() -> World:
    """Two partitions in segments of 40 records and then in ten objects that they share with four others."""
    world = World()
    for partition in (0, 1):
        await world.put_segments(partition, 10, 10)
    for number in range(10):
        shares = [(partition, 80 if partition < 2 else 0) for partition in range(6)]
        world.put(f"wal/{number}", *((one, first + 3 * number, [100 + number] * 3) for one, first in shares))
    return world


def everything(world: World) -> dict[Place, Span]:
    return {planning.place_of(one): Span(one.start_offset, one.end_offset) for one in world.layouts.values()}


def plan(world: World, *, max_task_bytes: int = 1 << 30, min_tasks: int = 1, min_timestamp_ms: int | None = None):
    return planning.plan(
        list(world.layouts.values()),
        everything(world),
        max_task_bytes=max_task_bytes,
        min_tasks=min_tasks,
        min_timestamp_ms=min_timestamp_ms,
    )


@pytest.mark.parametrize("min_tasks", [1, 2, 7, 60])
def test_everything_is_read_once_and_in_order(world, min_tasks):
    tasks = plan(world, min_tasks=min_tasks)
    ends: dict[Place, int] = defaultdict(int)
    for piece in (piece for task in tasks for piece in task):
        assert piece.start == ends[piece.place]
        ends[piece.place] = piece.end
    assert ends == {place: span.end for place, span in everything(world).items()}
    assert min_tasks * 0.7 <= len(tasks) <= min_tasks * 2


def test_tasks_are_about_as_large_as_each_other(world):
    sizes = [sum(piece.size_bytes for piece in task) for task in plan(world, min_tasks=5)]
    assert max(sizes) < 1.5 * sum(sizes) / len(sizes)


def test_an_object_is_read_at_once_for_all_partitions(world):
    (task,) = plan(world)
    gets = list(planning.gets([piece for piece in task if isinstance(piece, planning.WalPiece)]))
    assert [get.object_key for get in gets] == [f"wal/{number}" for number in range(10)]
    assert all(len(get.pieces) == 6 for get in gets)
    assert (gets[0].start, gets[0].end) == (6, len(world.store.objects["wal/0"]))


def test_only_a_part_of_partitions_is_read(world):
    wanted = {Place("t", 1): Span(35, 82), Place("t", 4): Span(29, 40)}
    (task,) = planning.plan(list(world.layouts.values()), wanted, max_task_bytes=1 << 30, min_tasks=1)
    assert [(piece.place.partition, piece.start, piece.end) for piece in task] == [
        (1, 35, 40),
        (1, 40, 80),
        (1, 80, 82),
        (4, 29, 30),
    ]


def test_what_has_no_record_so_late_is_left_out(world):
    pieces = [piece for task in plan(world, min_timestamp_ms=107) for piece in task]
    assert {piece.batches.object_key for piece in pieces if isinstance(piece, planning.WalPiece)} == {
        "wal/7",
        "wal/8",
        "wal/9",
    }


def test_objects_of_one_millisecond_stay_in_the_order_of_offsets():
    world = World()
    for number, key in enumerate(["wal/b", "wal/a", "wal/c"]):
        world.put(key, (0, 3 * number, [1, 2, 3]), (1, 3 * number, [1, 2, 3]))
    ((*pieces,),) = plan(world)
    for partition in (0, 1):
        starts = [piece.start for piece in pieces if piece.place.partition == partition]
        assert starts == [0, 3, 6]


def test_nothing_to_read_needs_no_task():
    assert planning.plan([World.empty(0)], {}, max_task_bytes=1, min_tasks=5) == []
