"""The metadata of remote segments in memory misbehaves exactly as it is told to."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadataError
from diskless_core.remote_log.metadata import RemoteLogSegmentState
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger, MemoryRemoteLogMetadata, Operation
from diskless_core.testing.remote_log_metadata_tools import PARTITION, segment, update

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
BEGUN = segment(1, 0, 9)


async def test_a_call_fails_before_it_has_an_effect_or_after() -> None:
    metadata = MemoryRemoteLogMetadata()
    metadata.fail_next(Operation.ADD)
    with pytest.raises(RemoteLogMetadataError) as failure:
        await metadata.add(BEGUN)
    assert failure.value.retriable
    assert await metadata.list(PARTITION) == []
    metadata.fail_next(Operation.ADD, takes_effect=True)
    with pytest.raises(RemoteLogMetadataError):
        await metadata.add(BEGUN)
    assert await metadata.list(PARTITION) == [BEGUN]
    await metadata.add(BEGUN)
    assert metadata.calls[Operation.ADD] == 3
    assert metadata.ledger.events == [BEGUN]


@pytest.mark.parametrize("operation", [Operation.FIND, Operation.HIGHEST_OFFSET, Operation.LIST])
async def test_reads_fail_too_and_each_operation_by_itself(operation: Operation) -> None:
    metadata = MemoryRemoteLogMetadata()
    reads = {
        Operation.FIND: lambda: metadata.find(PARTITION, 0, 0),
        Operation.HIGHEST_OFFSET: lambda: metadata.highest_offset(PARTITION, 0),
        Operation.LIST: lambda: metadata.list(PARTITION),
    }
    with metadata.failing(operation):
        for other, read in reads.items():
            if other is operation:
                with pytest.raises(RemoteLogMetadataError):
                    await read()
            else:
                await read()
    await reads[operation]()


async def test_a_call_waits_without_an_effect_while_it_is_held() -> None:
    metadata = MemoryRemoteLogMetadata()
    await metadata.add(BEGUN)
    with metadata.hold(Operation.UPDATE) as hold:
        updating = asyncio.create_task(metadata.update(update(BEGUN, FINISHED)))
        await hold.reached()
        assert await metadata.find(PARTITION, 0, 5) is None
    await updating
    assert await metadata.find(PARTITION, 0, 5) is not None


async def test_a_ledger_fails_and_keeps_what_changed_something() -> None:
    ledger = MemoryLedger()
    ledger.fail_next(Operation.APPEND)
    with pytest.raises(RemoteLogMetadataError):
        await ledger.append(BEGUN)
    await ledger.append(BEGUN)
    await ledger.append(BEGUN)
    with pytest.raises(IllegalTransitionError):
        await ledger.append(segment(1, 0, 8))
    assert ledger.events == [BEGUN]
    assert ledger.log(PARTITION).segments() == [BEGUN]
