"""The suites of `coordinator_store` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-coordinator-store")


class TestCoordinatorStore(MeasuredKit):
    noun = "coordinator_store"
