"""The suites of `orphan_detection` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-orphan-detection")


class TestOrphanDetection(MeasuredKit):
    noun = "orphan_detection"
