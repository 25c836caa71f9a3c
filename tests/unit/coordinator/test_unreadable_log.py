"""A log that a shard cannot understand: it says so and never leads, instead of standing still in silence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from diskless_core.clock import SystemClock
from diskless_core.coordinator import entries
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.protocol import messages, record_batch, record_frames
from diskless_core.protocol.record_batch import RecordData
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore

SHARD = DISKLESS.shard(0)


async def test_a_shard_whose_log_holds_an_entry_that_it_cannot_read_refuses_to_lead_and_names_the_offset() -> None:
    log = SharedLog().node(1)
    of_a_later_version = RecordData(None, record_frames.record_prefix(messages.CoordinatorEntryRecord, version=9))
    await log.start()
    await log.append(SHARD, [record_batch.build([of_a_later_version], timestamp_ms=0)])
    services = ShardServices(node_id=1, clock=SystemClock(seed=1), log=log, store=MemoryCoordinatorStore())
    shard = CoordinatorShard(SHARD, DisklessMachine(), services)
    await shard.start()
    try:
        with pytest.raises(CoordinatorError, match="log offset 0"):
            await shard.until_leading()
    finally:
        await shard.stop()
        await log.stop()


def entry_of(*values: bytes) -> bytes:
    return record_batch.build([RecordData(None, value) for value in values], timestamp_ms=0)


HEAD = record_frames.record_prefix(messages.CoordinatorEntryRecord)
CLAIM_HEAD = record_frames.record_prefix(messages.CoordinatorClaimRecord)
SOUND = entries.encode_entry(0, 0, [entries.NO_OP], 0)


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 0x10
    return bytes(changed)


async def shard_with(*written: bytes) -> tuple[CoordinatorShard[Any], SharedLog]:
    """A shard that has read these entries, each of which may be anything."""
    shared = SharedLog()
    log = shared.node(1)
    await log.start()
    state = shared.state(SHARD)
    for data in written:
        state.entries.append(LogBatch(state.end, state.end + 1, data))
        state.end = state.high_watermark = state.end + 1
    services = ShardServices(node_id=1, clock=SystemClock(seed=1), log=log, store=MemoryCoordinatorStore())
    shard = CoordinatorShard(SHARD, DisklessMachine(), services)
    await shard.start()
    return shard, shared


@pytest.mark.parametrize(
    "malformed",
    [
        entry_of(HEAD),
        entry_of(HEAD + b"\x00" * 3),
        entry_of(CLAIM_HEAD + b"\x00" * 200),
        entry_of(SOUND[:20]),
        b"",
        b"hello",
        b"\x00" * 500,
    ],
)
async def test_what_is_malformed_and_has_the_right_checksum_is_ignored(malformed: bytes) -> None:
    shard, _ = await shard_with(malformed)
    await shard.until_leading()
    await shard.barrier()
    assert shard.failure is None
    assert shard.meter.foreign_batches._value.get() == 1
    await shard.stop()


@pytest.mark.parametrize(
    "damaged",
    [flipped(SOUND, at) for at in (9, 18, 22, 57, 61, len(SOUND) - 3)] + [SOUND[:-1], SOUND[:40], SOUND + b"?"],
)
async def test_a_damaged_entry_is_not_ignored(damaged: bytes) -> None:
    shard, _ = await shard_with(damaged)
    with pytest.raises(CoordinatorError, match="log offset 0 on: the log is damaged here"):
        await shard.until_leading()
    await shard.stop()


async def test_a_leader_whose_own_entry_comes_back_damaged_does_not_acknowledge_it() -> None:
    shard, shared = await shard_with()
    await shard.until_leading()
    shared.hold_high_watermark(SHARD)
    waiting = asyncio.create_task(shard.barrier())
    state = shared.state(SHARD)
    await state.changed.wait()
    assert len(state.entries) == 2
    last = state.entries[-1]
    state.entries[-1] = LogBatch(last.offset, last.next_offset, flipped(last.data, len(last.data) - 2))
    shared.release_high_watermark(SHARD)
    with pytest.raises(CoordinatorError):
        await waiting
    assert "the log is damaged here" in (shard.failure or "")
    await shard.stop()
