"""The trials of policies and of what works on objects in memory: they have no place."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from diskless_core.plugin.orphan_detection import OrphanDetection
from diskless_core.plugin.segment_compaction import SegmentCompaction
from diskless_core.plugin_host.nouns import (
    GATEWAY_PLACEMENT,
    OFFSET_ASSIGNMENT,
    ORPHAN_DETECTION,
    SEGMENT_COMPACTION,
)
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.compaction_job import FakeCompactionJob
from diskless_core.testing.gateway_placement import GatewayPlacementContract, MakePlacement
from diskless_core.testing.offset_assignment import MakeAssignment, OffsetAssignmentContract
from diskless_core.testing.orphan_detection import OrphanDetectionContract
from diskless_core.testing.segment_compaction import SegmentCompactionContract
from diskless_core.trial.ground import Ground


class TestOffsetAssignment(OffsetAssignmentContract):
    @pytest.fixture
    def make_assignment(self, ground: Ground) -> MakeAssignment:
        return lambda: ground.create(OFFSET_ASSIGNMENT)


class TestGatewayPlacement(GatewayPlacementContract):
    @pytest.fixture
    def make_placement(self, ground: Ground) -> MakePlacement:
        return lambda: ground.create(GATEWAY_PLACEMENT)


class TestOrphanDetection(OrphanDetectionContract):
    @pytest.fixture
    def detection(self, ground: Ground) -> OrphanDetection:
        return ground.create(ORPHAN_DETECTION)


class TestSegmentCompaction(SegmentCompactionContract):
    @pytest.fixture
    def engine(self, ground: Ground) -> SegmentCompaction:
        return ground.create(SEGMENT_COMPACTION)

    @pytest.fixture
    def new_job(self, ground: Ground) -> Callable[[], FakeCompactionJob]:
        """Of files, so that an engine may work in other processes of this machine."""
        numbers = itertools.count()
        return lambda: FolderCompactionJob(ground.folder() / f"job-{next(numbers)}")
