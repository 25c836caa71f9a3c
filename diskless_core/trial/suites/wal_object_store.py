"""The trial of an object store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.plugin_host.nouns import WAL_OBJECT_STORE
from diskless_core.testing.wal_object_store import WalObjectStoreContract
from diskless_core.testing.wal_object_store_failures import MakeObjectStore
from diskless_core.testing.wal_object_store_tools import ObjectBackDoor
from diskless_core.trial.ground import Ground
from diskless_core.trial.suites.back_door import OtherInstance


class TestObjectStore(WalObjectStoreContract):
    shares_keys = False

    @pytest.fixture
    def other_instance(self, ground: Ground) -> Iterator[OtherInstance]:
        other = OtherInstance(ground.create(WAL_OBJECT_STORE), ground.thread)
        yield other
        other.close()

    @pytest.fixture
    def make_store(self, ground: Ground, other_instance: OtherInstance) -> MakeObjectStore:
        return lambda: ground.create(WAL_OBJECT_STORE, before=other_instance.settled)

    @pytest.fixture
    def store(self, make_store: MakeObjectStore) -> WalObjectStore:
        return make_store()

    @pytest.fixture
    def back_door(self, other_instance: OtherInstance) -> ObjectBackDoor:
        return other_instance

    @pytest.mark.asyncio
    async def test_a_long_listing_comes_in_pages_and_is_complete(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        """How many objects a page has is not known here, so that one page may be enough."""
        keys = self.more_than_a_page(back_door)
        pages = [[info.key for info in page] async for page in started.list("paged/")]
        assert {key for page in pages for key in page} == keys
        if len(pages) < 2:
            pytest.skip(f"{len(keys)} objects came in one page; they were all there")
