"""The trial of a keeper of segments' metadata. All its tests have one place, and partitions of their own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataServices
from diskless_core.plugin_host.nouns import REMOTE_LOG_METADATA
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.testing.remote_log_metadata import RemoteLogMetadataContract
from diskless_core.testing.remote_log_metadata_lookups import MakeMetadata
from diskless_core.testing.remote_log_metadata_tools import CLUSTER_ID
from diskless_core.trial.ground import Ground
from diskless_core.trial.loop_thread import LoopThread


class OnAnotherLoop:
    """An instance on the trial's own loop, which tests on theirs may share."""

    def __init__(self, made: RemoteLogMetadata, thread: LoopThread) -> None:
        self._made = made
        self._thread = thread

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            return await asyncio.wrap_future(self._thread.begin(getattr(self._made, name)(*arguments)))

        return call


@pytest.fixture(scope="module")
def services_of_all() -> RemoteLogMetadataServices:
    return RemoteLogMetadataServices(cluster_id=CLUSTER_ID, ledger=MemoryLedger())


@pytest.fixture(scope="module")
def instance_of_all(
    ground_of_all: Ground, services_of_all: RemoteLogMetadataServices
) -> Iterator[OnAnotherLoop | None]:
    """The instance that all tests share where it takes long to start one; None elsewhere."""
    if ground_of_all.starts_quickly:
        yield None
        return
    made, thread = ground_of_all.create(REMOTE_LOG_METADATA), ground_of_all.thread
    thread.run(made.start(services_of_all))
    yield OnAnotherLoop(made, thread)
    thread.run(made.stop())


class TestRemoteLogMetadata(RemoteLogMetadataContract):
    @pytest.fixture
    def services(self, services_of_all: RemoteLogMetadataServices) -> RemoteLogMetadataServices:
        return services_of_all

    @pytest.fixture
    def make_metadata(self, ground_of_all: Ground) -> MakeMetadata:
        numbers = itertools.count(1)
        return lambda: ground_of_all.create(REMOTE_LOG_METADATA, node_id=next(numbers))

    @pytest_asyncio.fixture
    async def metadata(  # type: ignore[override] # fixtures are asked for by name
        self,
        instance_of_all: OnAnotherLoop | None,
        make_metadata: MakeMetadata,
        services: RemoteLogMetadataServices,
    ) -> AsyncIterator[Any]:
        if instance_of_all is not None:
            yield instance_of_all
            return
        made = make_metadata()
        await made.start(services)
        try:
            yield made
        finally:
            await made.stop()
