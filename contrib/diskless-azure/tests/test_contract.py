"""Both backends keep the contracts, on Azurite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import ContainerClient
from azurite import KEY, Azurite

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

    @pytest.fixture
    def store(self, azurite: Azurite, container: ContainerClient, context: PluginContext) -> WalObjectStore:
        settings = AzureSettings(
            account_url=azurite.account_url, container=container.container_name, prefix=PREFIX, account_key=KEY
        )
        return AzureObjectStore(AzureContainer(settings, context.clock), page_objects=self.page_objects)

    @pytest.fixture
    def back_door(self, container: ContainerClient) -> ObjectBackDoor:
        return AzureBackDoor(container)


class TestAzureInBlocks(TestAzure):
    """As large objects go, with sizes that tests have time for."""

    @pytest.fixture
    def store(self, azurite: Azurite, container: ContainerClient, context: PluginContext) -> WalObjectStore:
        settings = AzureSettings(
            account_url=azurite.account_url, container=container.container_name, prefix=PREFIX, account_key=KEY
        )
        return AzureObjectStore(
            AzureContainer(settings, context.clock),
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
    @pytest.fixture
    def make_storage(
        self, azurite: Azurite, container: ContainerClient, context: PluginContext
    ) -> Callable[[], RemoteStorage]:
        settings = AzureRemoteStorageSettings(
            account_url=azurite.account_url, container=container.container_name, prefix=PREFIX, account_key=KEY
        )
        return lambda: make_remote_storage(context, settings)
