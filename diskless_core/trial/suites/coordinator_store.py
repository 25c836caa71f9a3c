"""The trial of a coordinator store."""

from __future__ import annotations

import pytest

from diskless_core.testing.coordinator_store import CoordinatorStoreContract
from diskless_core.testing.coordinator_store_crashes import MakeStore
from diskless_core.trial.ground import Ground


class TestCoordinatorStore(CoordinatorStoreContract):
    @pytest.fixture
    def make_store(self, ground: Ground) -> MakeStore:
        return ground.store_source()
