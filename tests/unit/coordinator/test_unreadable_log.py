"""A log that a shard cannot understand: it says so and never leads, instead of standing still in silence."""

from __future__ import annotations

import pytest

from diskless_core.clock import SystemClock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.diskless.state_machine import DisklessMachine
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
