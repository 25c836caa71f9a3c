"""The offset assignments that come with Diskless keep the contract, and the suite finds out those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.testing.offset_assignment import MakeAssignment, OffsetAssignmentContract
from diskless_policies.plugin import diskless_offset_assignments


class TestSequential(OffsetAssignmentContract):
    @pytest.fixture
    def make_assignment(self, tmp_path: Path) -> MakeAssignment:
        (descriptor,) = diskless_offset_assignments()
        context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
        return lambda: descriptor.factory(context, descriptor.settings())

    def test_it_leaves_no_gaps(self, make_assignment: MakeAssignment) -> None:
        assert list(make_assignment().assign(10, [3, 1, 5])) == [10, 13, 14]


class EvenAssignment(OffsetAssignment):
    """Starts each batch at an even offset: gaps are allowed."""

    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        offsets = []
        for records in record_counts:
            offsets.append(next_offset + next_offset % 2)
            next_offset = offsets[-1] + records
        return offsets


class TestWithGaps(OffsetAssignmentContract):
    @pytest.fixture
    def make_assignment(self) -> MakeAssignment:
        return EvenAssignment


CALLS = count()


@pytest.mark.parametrize(
    "work",
    [
        lambda next_offset, counts: [next_offset] * len(counts),
        lambda next_offset, counts: [next_offset - 1 + 2**40 * n for n, _ in enumerate(counts)],
        lambda next_offset, counts: [next_offset + 2**32 * n for n in range(len(counts))][::-1],
        lambda next_offset, counts: [next_offset + 2**32 * n for n in range(len(counts) + 1)],
        lambda next_offset, counts: [next_offset + 2**40 * n + next(CALLS) for n in range(len(counts))],
    ],
    ids=["overlap", "taken offset", "backwards", "one too many", "changes by the call"],
)
def test_the_suite_fails_for_a_broken_assignment(work: Callable[[int, Sequence[int]], Sequence[int]]) -> None:
    class BrokenAssignment(OffsetAssignment):
        def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
            return work(next_offset, record_counts)

    def run_suite() -> None:
        suite = OffsetAssignmentContract()
        suite.test_batches_begin_at_free_offsets_in_order_and_do_not_overlap(BrokenAssignment)
        suite.test_another_instance_that_is_asked_in_another_order_gives_the_same_offsets(BrokenAssignment)

    with pytest.raises(AssertionError):
        run_suite()
