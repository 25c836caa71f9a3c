"""Both backends keep the contracts, on Azurite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import ContainerClient
from azurite import ACCOUNT, KEY, Azurite
from faults import Fault, FaultyServer, refusal

from diskless_azure.config import AzureRemoteStorageSettings, AzureSettings
from diskless_azure.container import AzureContainer
from diskless_azure.factory import make_remote_storage
from diskless_azure.object_store import AzureObjectStore
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_core.testing.remote_storage import RemoteStorageContract
from diskless_core.testing.wal_object_store import WalObjectStoreContract
from diskless_core.testing.wal_object_store_tools import KEY as OBJECT_KEY
from diskless_core.testing.wal_object_store_tools import TIMEOUT_S, ObjectBackDoor, body, read_whole

PREFIX = "some/place"
NOBODY = "http://127.0.0.1:1/account"
DISTURBANCES = {"break_storage", "fail_backend", "hang_backend"}
DISTURBED_TIMEOUT_MS = 3_000


@pytest.fixture
def faulty(azurite: Azurite) -> Iterator[FaultyServer]:
    with FaultyServer(azurite.port, ACCOUNT).running_in_a_thread() as running:
        yield running


@pytest.fixture
def settings(request: pytest.FixtureRequest, azurite: Azurite, container: ContainerClient) -> dict[str, Any]:
    """Of what is disturbed, the requests go through a server that can do so."""
    settings = {"container": container.container_name, "prefix": PREFIX, "account_key": KEY}
    if DISTURBANCES.isdisjoint(request.fixturenames):
        return settings | {"account_url": azurite.account_url}
    faulty: FaultyServer = request.getfixturevalue("faulty")
    return settings | {"account_url": faulty.account_url, "request_timeout_ms": DISTURBED_TIMEOUT_MS}


@asynccontextmanager
async def disturbed(faulty: FaultyServer, what: Fault | bytes) -> AsyncIterator[None]:
    faulty.rule = lambda request: what
    try:
        yield
    finally:
        faulty.rule = lambda request: None


class AzureBackDoor(ObjectBackDoor):
    def __init__(self, container: ContainerClient) -> None:
        self.container = container

    def write(self, key: str, data: bytes) -> None:
        self.container.upload_blob(f"{PREFIX}/{key}", data, overwrite=True)

    def read(self, key: str) -> bytes | None:
        try:
            return self.container.download_blob(f"{PREFIX}/{key}").readall()
        except ResourceNotFoundError:
            return None

    def protect(self, key: str) -> None:
        self.container.get_blob_client(f"{PREFIX}/{key}").acquire_lease()


class TestAzure(WalObjectStoreContract):
    writes_on_condition = True
    never_a_version = '"0x8D0123456789ABC"'
    page_objects = 10
    secrets = (KEY,)

    @pytest.fixture
    def make_store(self, settings: dict[str, Any], context: PluginContext) -> Callable[[], WalObjectStore]:
        def make() -> WalObjectStore:
            container = AzureContainer(AzureSettings(**settings), context.clock)
            return AzureObjectStore(container, page_objects=self.page_objects)

        return make

    @pytest.fixture
    def store(self, make_store: Callable[[], WalObjectStore]) -> WalObjectStore:
        return make_store()

    @pytest.fixture
    def unopenable_store(self, settings: dict[str, Any], context: PluginContext) -> WalObjectStore:
        return AzureObjectStore(AzureContainer(AzureSettings(**settings | {"account_url": NOBODY}), context.clock))

    @pytest.fixture
    def fail_backend(self, faulty: FaultyServer) -> Callable[[], AbstractAsyncContextManager[None]]:
        return lambda: disturbed(faulty, refusal("503 Busy", "ServerBusy"))

    @pytest.fixture
    def hang_backend(self, faulty: FaultyServer) -> Callable[[], AbstractAsyncContextManager[None]]:
        return lambda: disturbed(faulty, Fault.HANG)

    @pytest.fixture
    def back_door(self, container: ContainerClient) -> ObjectBackDoor:
        return AzureBackDoor(container)


class TestAzureInBlocks(TestAzure):
    """As large objects go, with sizes that tests have time for."""

    @pytest.fixture
    def make_store(self, settings: dict[str, Any], context: PluginContext) -> Callable[[], WalObjectStore]:
        return lambda: AzureObjectStore(
            AzureContainer(AzureSettings(**settings), context.clock),
            page_objects=self.page_objects,
            single_put_bytes=100_000,
            block_bytes=65_536,
        )

    @pytest.mark.asyncio
    async def test_puts_of_one_key_at_once_leave_one_of_them_whole(self, started: WalObjectStore) -> None:
        """The service throws away the blocks of the others when one is committed. They may be put again."""
        bodies = [body(200_000 + number, number) for number in range(8)]
        async with asyncio.timeout(TIMEOUT_S):
            outcomes = await asyncio.gather(*(started.put(OBJECT_KEY, data) for data in bodies), return_exceptions=True)
        assert None in outcomes
        assert all(isinstance(error, WalObjectStoreError) and error.retriable for error in outcomes if error)
        assert await read_whole(started, OBJECT_KEY) in bodies


class TestAzureRemoteStorage(RemoteStorageContract):
    secrets = (KEY,)
    most_copy_memory_bytes = 96 << 20

    @pytest.fixture
    def make_storage(self, settings: dict[str, Any], context: PluginContext) -> Callable[[], RemoteStorage]:
        return lambda: make_remote_storage(context, AzureRemoteStorageSettings(**settings))

    @pytest.fixture
    def make_unreachable_storage(self, settings: dict[str, Any], context: PluginContext) -> Callable[[], RemoteStorage]:
        elsewhere = AzureRemoteStorageSettings(**settings | {"account_url": NOBODY})
        return lambda: make_remote_storage(context, elsewhere)

    @pytest.fixture
    def break_storage(self, faulty: FaultyServer) -> Callable[[RemoteStorage], AbstractAsyncContextManager[None]]:
        return lambda storage: disturbed(faulty, refusal("503 Busy", "ServerBusy"))
