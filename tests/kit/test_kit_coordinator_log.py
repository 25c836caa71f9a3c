"""The suites of `coordinator_log` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-coordinator-log")


class TestCoordinatorLog(MeasuredKit):
    noun = "coordinator_log"
