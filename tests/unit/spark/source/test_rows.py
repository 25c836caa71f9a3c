"""The rows that a task of a query gets, where records of some batches are damaged."""

from __future__ import annotations

import pytest

from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_spark.source import source, tables
from diskless_spark.source.options import parse
from diskless_spark.source.source import BatchQuery
from tests.support.batches import with_header
from tests.unit.spark.source.worlds import World


def spoil(world: World, partition: int, number: int) -> None:
    """Claim that a batch of one record has two."""
    run = world.layouts[partition].ranges[number]
    data = world.store.objects[run.object_key]
    batch = data[run.byte_offset : run.byte_offset + run.byte_size]
    spoilt = with_header(batch, record_count=2)
    world.store.objects[run.object_key] = data[: run.byte_offset] + spoilt + data[run.byte_offset + len(batch) :]


@pytest.fixture
def world() -> World:
    world = World()
    for offset in range(6):
        world.put(f"wal/{offset}", (0, offset, [1]))
    spoil(world, 0, 2)
    spoil(world, 0, 5)
    return world


def offsets_of(world: World, **options: str) -> list[int]:
    chosen = {"subscribe": "t", **options}
    query = BatchQuery(parse(chosen, is_stream=False), tables.full_schema(include_headers=False))
    query.layouts = world  # type: ignore[assignment]
    query.connection = world  # type: ignore[assignment]
    [task] = query.partitions()
    return [row["offset"] for rows in query.rows(task) for row in rows.to_pylist()]


def test_a_batch_whose_records_contradict_its_header_ends_the_query_and_is_named(world: World) -> None:
    with pytest.raises(CorruptBatchError, match=r"t-0, offsets 2 to 2: .*With diskless\.skipDamaged=true"):
        offsets_of(world)


@pytest.mark.parametrize("rows_bytes", [1, 1 << 20])
def test_when_told_to_the_query_goes_on_without_its_records(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, rows_bytes: int
) -> None:
    monkeypatch.setattr(source, "ROWS_BYTES", rows_bytes)
    assert offsets_of(world, **{"diskless.skipDamaged": "true"}) == [0, 1, 3, 4]
    skipped = [record.getMessage().partition(": the batch")[0] for record in caplog.records]
    assert skipped == [f"a damaged batch is skipped: t-0, offsets {offset} to {offset}" for offset in (2, 5)]
