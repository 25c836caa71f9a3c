"""The in-memory coordinator log misbehaves exactly as it was told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogOffsetPrunedError
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    batch_of,
    next_batches,
    read_all,
    reading,
    same_content,
)
from diskless_core.testing.fakes.log import AppendFault, FakeCoordinatorLog, SharedLog

A, B, C = batch_of(b"a"), batch_of(b"b"), batch_of(b"c")


@pytest.fixture
def shared() -> SharedLog:
    return SharedLog()


@pytest.fixture
async def nodes(shared: SharedLog) -> AsyncIterator[list[FakeCoordinatorLog]]:
    nodes = [shared.node(node_id) for node_id in (1, 2)]
    for node in nodes:
        await node.start()
    yield nodes
    for node in nodes:
        await node.stop()


async def test_nodes_share_one_log(nodes: list[FakeCoordinatorLog]) -> None:
    assert [*await nodes[0].append(SHARD, [A]), *await nodes[1].append(SHARD, [B])] == [0, 1]
    assert same_content(await read_all(nodes[0], SHARD), [A, B])
    assert await read_all(nodes[0], SHARD) == await read_all(nodes[1], SHARD)


@pytest.mark.parametrize(
    ("fault", "appended"),
    [
        (AppendFault.NOTHING_APPENDED, []),
        (AppendFault.FIRST_BATCH_APPENDED, [A]),
        (AppendFault.ALL_APPENDED, [A, B]),
        (AppendFault.APPENDED_LATER, []),
    ],
)
async def test_a_failing_append_leaves_what_the_fault_says(
    shared: SharedLog, nodes: list[FakeCoordinatorLog], fault: AppendFault, appended: list[bytes]
) -> None:
    shared.fail_next_append(fault)
    with pytest.raises(CoordinatorLogError, match="injected"):
        await nodes[0].append(SHARD, [A, B])
    assert same_content(shared.content(SHARD), appended)
    await nodes[0].append(SHARD, [C])
    assert same_content(shared.content(SHARD), [*appended, C])


async def test_a_late_append_lands_behind_what_came_meanwhile(
    shared: SharedLog, nodes: list[FakeCoordinatorLog]
) -> None:
    shared.fail_next_append(AppendFault.APPENDED_LATER)
    with pytest.raises(CoordinatorLogError):
        await nodes[0].append(SHARD, [A, B])
    await nodes[1].append(SHARD, [C])
    shared.land_late_appends(SHARD)
    assert same_content(await read_all(nodes[1], SHARD), [C, A, B])


async def test_a_fault_concerns_only_the_shard_and_node_that_it_names(
    shared: SharedLog, nodes: list[FakeCoordinatorLog]
) -> None:
    shared.fail_next_append(shard=SHARD, node_id=2, times=2)
    await nodes[0].append(SHARD, [A])
    await nodes[1].append(OTHER_SHARD, [A])
    for _ in range(2):
        with pytest.raises(CoordinatorLogError):
            await nodes[1].append(SHARD, [B])
    await nodes[1].append(SHARD, [B])
    assert same_content(shared.content(SHARD), [A, B])


async def test_faults_may_come_from_a_function(shared: SharedLog, nodes: list[FakeCoordinatorLog]) -> None:
    shared.append_error = lambda _, node_id: AppendFault.ALL_APPENDED if node_id == 2 else None
    await nodes[0].append(SHARD, [A])
    with pytest.raises(CoordinatorLogError):
        await nodes[1].append(SHARD, [B])
    assert same_content(shared.content(SHARD), [A, B])


async def test_a_held_high_watermark_hides_appends_and_keeps_them_waiting(
    shared: SharedLog, nodes: list[FakeCoordinatorLog]
) -> None:
    await nodes[0].append(SHARD, [A])
    shared.hold_high_watermark(SHARD)
    append = asyncio.create_task(nodes[0].append(SHARD, [B]))
    async with reading(nodes[1], SHARD, 1) as reader:
        waiting = asyncio.create_task(next_batches(reader))
        await asyncio.sleep(0)
        await nodes[1].append(OTHER_SHARD, [C])
        assert (await nodes[1].bounds(SHARD)).end == 1
        assert not append.done()
        assert not waiting.done()
        shared.release_high_watermark(SHARD)
        assert await append == [1]
        assert same_content(await waiting, [B])


async def test_an_append_that_waits_raises_when_its_node_stops(
    shared: SharedLog, nodes: list[FakeCoordinatorLog]
) -> None:
    shared.hold_high_watermark(SHARD)
    append = asyncio.create_task(nodes[0].append(SHARD, [A]))
    await asyncio.sleep(0)
    await nodes[0].stop()
    with pytest.raises(CoordinatorLogError):
        await append
    shared.release_high_watermark(SHARD)
    assert same_content(await read_all(nodes[1], SHARD), [A])


async def test_one_node_may_lag_behind_the_other(shared: SharedLog, nodes: list[FakeCoordinatorLog]) -> None:
    shared.pause_reads(2)
    async with reading(nodes[1], SHARD, 0) as reader:
        waiting = asyncio.create_task(next_batches(reader))
        await nodes[1].append(SHARD, [A])
        assert same_content(await read_all(nodes[0], SHARD), [A])
        assert not waiting.done()
        shared.resume_reads(2)
        assert same_content(await waiting, [A])


async def test_the_first_node_that_starts_is_the_hinted_leader_until_told_otherwise(
    shared: SharedLog, nodes: list[FakeCoordinatorLog]
) -> None:
    hints = [node.leadership(SHARD) for node in nodes]
    assert [(await anext(hint)).node_id for hint in hints] == [1, 1]
    shared.set_leader(SHARD, 2)
    assert [(await anext(hint)).node_id for hint in hints] == [2, 2]
    shared.set_leader(SHARD, None)
    assert [(await anext(hint)).node_id for hint in hints] == [None, None]


async def test_a_node_that_is_no_candidate_is_passed_over_for_that_shard_unless_a_test_says_otherwise(
    shared: SharedLog, nodes: list[FakeCoordinatorLog]
) -> None:
    outsider, candidate = nodes
    assert (await anext(outsider.leadership(SHARD, candidate=False))).node_id == 2
    assert (await anext(candidate.leadership(SHARD))).node_id == 2
    assert (await anext(outsider.leadership(OTHER_SHARD))).node_id == 1
    shared.set_leader(SHARD, 1)
    assert (await anext(outsider.leadership(SHARD, candidate=False))).node_id == 1


async def test_a_node_that_lags_learns_of_a_prune_when_it_reads_again(
    shared: SharedLog, nodes: list[FakeCoordinatorLog]
) -> None:
    shared.pause_reads(2)
    async with reading(nodes[1], SHARD, 0) as reader:
        waiting = asyncio.create_task(next_batches(reader))
        await nodes[0].append(SHARD, [A, B])
        await nodes[0].prune(SHARD, 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        shared.resume_reads(2)
        with pytest.raises(LogOffsetPrunedError):
            await waiting


async def test_two_nodes_may_each_be_told_that_they_lead(shared: SharedLog, nodes: list[FakeCoordinatorLog]) -> None:
    shared.set_leader(SHARD, 2, seen_by=[2])
    assert [(await anext(node.leadership(SHARD))).node_id for node in nodes] == [1, 2]


async def test_delayed_appends_of_two_nodes_interleave(shared: SharedLog, nodes: list[FakeCoordinatorLog]) -> None:
    shared.append_delay_s = lambda: 0.0
    await asyncio.gather(nodes[0].append(SHARD, [A, A]), nodes[1].append(SHARD, [B, B]))
    assert same_content(shared.content(SHARD), [A, B, A, B])


async def test_a_restarted_node_finds_the_log(shared: SharedLog, nodes: list[FakeCoordinatorLog]) -> None:
    await nodes[0].append(SHARD, [A])
    await nodes[0].stop()
    again = shared.node(1)
    await again.start()
    assert same_content(await read_all(again, SHARD), [A])
    await again.stop()
