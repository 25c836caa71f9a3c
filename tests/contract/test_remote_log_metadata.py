"""The keepers of segments' metadata that come with Diskless keep the contract."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from diskless_core.clock import SystemClock
from diskless_core.diskless.ledger import CoordinatorLedger
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.remote_log.metadata import (
    TopicIdPartition,
    partition_of,
)
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger, MemoryRemoteLogMetadata, Operation
from diskless_core.testing.remote_log_metadata import RemoteLogMetadataContract
from diskless_core.testing.remote_log_metadata_life import BreakMetadata
from diskless_core.testing.remote_log_metadata_lookups import MakeMetadata
from diskless_core.testing.remote_log_metadata_tools import CLUSTER_ID, segment
from diskless_tiering.config import CoordinatorMetadataSettings
from diskless_tiering.coordinator_metadata import CoordinatorMetadata
from tests.kit.metadata_backends import broken
from tests.support.shards import ShardNode

PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 3)


class TestFake(RemoteLogMetadataContract):
    @pytest.fixture
    def make_metadata(self) -> MakeMetadata:
        ledger = MemoryLedger()
        return lambda: MemoryRemoteLogMetadata(ledger)

    @pytest.fixture
    def break_metadata(self) -> BreakMetadata:
        return broken


class TestCoordinator(RemoteLogMetadataContract):
    @pytest.fixture
    def make_metadata(self, tmp_path: Path) -> MakeMetadata:
        context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
        return lambda: CoordinatorMetadata(context, CoordinatorMetadataSettings())

    @pytest.fixture
    def break_metadata(self, services: RemoteLogMetadataServices) -> BreakMetadata | None:
        @asynccontextmanager
        async def without_answers(_: RemoteLogMetadata) -> AsyncIterator[None]:
            assert isinstance(services.ledger, MemoryLedger)
            with services.ledger.failing(Operation.APPEND):
                yield

        return without_answers


class LedgerOfAll(CoordinatorLedger):
    """Every partition is there as soon as something is said of it."""

    async def append(self, event):
        topic_id, topic, partition = partition_of(event)
        await self._shards[0].create_partitions(topic_id, topic, [partition])
        await super().append(event)


class TestCoordinatorInItsLog(TestCoordinator):
    """With the ledger that the broker has, on a shard of its own."""

    @pytest_asyncio.fixture
    async def services(self) -> AsyncIterator[RemoteLogMetadataServices]:
        node = ShardNode(SharedLog(), SystemClock())
        await node.start()
        yield RemoteLogMetadataServices(cluster_id=CLUSTER_ID, ledger=LedgerOfAll({0: node.shard}, lambda _: 0))
        await node.stop()

    @pytest.fixture
    def break_metadata(self) -> None:  # type: ignore[override]
        """Tests of the ledger do that."""


async def test_the_coordinators_metadata_is_not_asked_before_it_is_started(tmp_path) -> None:
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    metadata = CoordinatorMetadata(context, CoordinatorMetadataSettings())
    with pytest.raises(RemoteLogMetadataError, match="not started") as failure:
        await metadata.list(PARTITION)
    assert not failure.value.retriable


async def test_the_coordinators_metadata_tells_of_a_ledger_without_answer(tmp_path) -> None:
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    metadata, ledger = CoordinatorMetadata(context, CoordinatorMetadataSettings()), MemoryLedger()
    await metadata.start(RemoteLogMetadataServices(cluster_id="c", ledger=ledger))
    begun = segment(1, 0, 9, partition=PARTITION)
    ledger.fail_next(Operation.APPEND)
    ledger.fail_next(Operation.APPEND, takes_effect=True)
    for listed in ([], [begun]):
        with pytest.raises(RemoteLogMetadataError, match="no answer"):
            await metadata.add(begun)
        assert await metadata.list(PARTITION) == listed
    await metadata.add(begun)
    assert ledger.events == [begun]
