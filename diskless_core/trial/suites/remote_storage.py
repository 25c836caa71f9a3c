"""The trial of a remote storage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin_host.nouns import REMOTE_STORAGE
from diskless_core.testing.remote_storage import RemoteStorageContract
from diskless_core.trial.ground import Ground


class TestRemoteStorage(RemoteStorageContract):
    @pytest.fixture
    def make_storage(self, ground: Ground) -> Callable[[], RemoteStorage]:
        return lambda: ground.create(REMOTE_STORAGE)
