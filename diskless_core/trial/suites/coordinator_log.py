"""The trial of a coordinator log."""

from __future__ import annotations

import pytest

from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin_host.nouns import COORDINATOR_LOG
from diskless_core.testing.coordinator_log import CoordinatorLogContract
from diskless_core.testing.coordinator_log_tools import MakeLog
from diskless_core.trial.ground import Ground


class TestCoordinatorLog(CoordinatorLogContract):
    @pytest.fixture
    def make_log(self, ground: Ground) -> MakeLog:
        def make(node_id: int = 1) -> CoordinatorLog:
            return ground.create(COORDINATOR_LOG, node_id=node_id)

        return make
