"""The suites of `offset_assignment` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-offset-assignment")


class TestOffsetAssignment(MeasuredKit):
    noun = "offset_assignment"
    least_faults = 6
