"""The suites of `segment_compaction` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-segment-compaction")


class TestSegmentCompaction(MeasuredKit):
    noun = "segment_compaction"
