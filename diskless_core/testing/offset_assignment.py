"""Contract suite of the noun `offset_assignment`: what every assignment plugin has to pass.

Subclass `OffsetAssignmentContract` in a test module and give it the fixture `make_assignment`; needs pytest and
hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.testing.other_process import answers_elsewhere

MakeAssignment = Callable[[], OffsetAssignment]

LARGEST_OFFSET = 2**63 - 1

MANY_BATCHES = 20_000
"""In one commit: more than any stack has frames, so that a recursive assignment fails."""

_LONGEST_TEXT = 300

_next_offsets = st.integers(0, 2**62)
_counts = st.lists(st.one_of(st.just(1), st.integers(1, 10), st.integers(1, 2**31 - 1)), max_size=30)
_some = settings(
    max_examples=50,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)


def require_valid(next_offset: int, record_counts: Sequence[int], base_offsets: Sequence[int]) -> None:
    """Assert that these are offsets that the core would accept."""
    said = f"assign({next_offset}, {_short(record_counts)}) gave {_short(base_offsets)}"
    assert isinstance(base_offsets, Sequence), f"{said}: offsets are given as a sequence"
    assert len(base_offsets) == len(record_counts), f"{said}: there is one offset for each batch"
    free = next_offset
    for base_offset, count in zip(base_offsets, record_counts, strict=True):
        assert type(base_offset) is int, f"{said}: an offset is an int"
        assert base_offset >= free, f"{said}: {base_offset} is taken, {free} is the first free offset there"
        free = base_offset + count
    assert free <= LARGEST_OFFSET, f"{said}: an offset fits into 63 bits"


def _short(values: object) -> str:
    text = str(values)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


class OffsetAssignmentContract:
    """An assignment plugin passes if a subclass with `make_assignment` overridden does."""

    @pytest.fixture
    def make_assignment(self) -> MakeAssignment:
        """A function that gives a new instance, as on another node or after a restart."""
        raise NotImplementedError("give this fixture in the subclass")

    def test_an_empty_commit_gets_no_offsets(self, make_assignment: MakeAssignment) -> None:
        base_offsets = list(make_assignment().assign(7, []))
        assert base_offsets == [], f"no offsets are given where there are no batches, and not {base_offsets}"

    def test_a_single_record_in_an_empty_partition_gets_an_offset(self, make_assignment: MakeAssignment) -> None:
        require_valid(0, [1], make_assignment().assign(0, [1]))

    def test_batches_begin_at_free_offsets_in_order_and_do_not_overlap(self, make_assignment: MakeAssignment) -> None:
        @_some
        @given(next_offset=_next_offsets, record_counts=_counts)
        def holds(next_offset: int, record_counts: list[int]) -> None:
            require_valid(next_offset, record_counts, make_assignment().assign(next_offset, record_counts))

        holds()

    def test_many_batches_in_one_commit_each_get_their_offsets(self, make_assignment: MakeAssignment) -> None:
        record_counts = [1 + n % 7 for n in range(MANY_BATCHES)]
        base_offsets = make_assignment().assign(2**40, record_counts)
        require_valid(2**40, record_counts, base_offsets)

    def test_one_commit_after_another_never_takes_an_offset_twice(self, make_assignment: MakeAssignment) -> None:
        @_some
        @given(commits=st.lists(_counts, max_size=8))
        def holds(commits: list[list[int]]) -> None:
            assignment = make_assignment()
            free = 0
            for record_counts in commits:
                base_offsets = assignment.assign(free, record_counts)
                require_valid(free, record_counts, base_offsets)
                if record_counts:
                    free = base_offsets[-1] + record_counts[-1]

        holds()

    def test_another_instance_that_is_asked_in_another_order_gives_the_same_offsets(
        self, make_assignment: MakeAssignment
    ) -> None:
        @_some
        @given(calls=st.lists(st.tuples(_next_offsets, _counts), max_size=8))
        def holds(calls: list[tuple[int, list[int]]]) -> None:
            one, other = make_assignment(), make_assignment()
            first = [list(one.assign(*call)) for call in calls]
            replayed = [list(other.assign(*call)) for call in reversed(calls)]
            assert first == replayed[::-1], (
                "offsets depend on the arguments alone, not on the instance or earlier calls"
            )
            again = [list(one.assign(*call)) for call in calls]
            assert again == first, "the same call gives the same offsets again, whatever came between"

        holds()

    def test_another_process_gives_the_same_offsets(self, make_assignment: MakeAssignment) -> None:
        assignment = make_assignment()
        calls = [(offset, [1 + (offset + n) % 9 for n in range(5)]) for offset in (*range(20), 2**31, 2**40 + 1)]
        elsewhere = answers_elsewhere(assignment, "assign", calls)
        here = [list(assignment.assign(*call)) for call in calls]
        assert [list(answer) for answer in elsewhere] == here, "the same offsets are given in every process"

    def test_later_calls_do_not_change_offsets_that_were_given(self, make_assignment: MakeAssignment) -> None:
        assignment = make_assignment()
        base_offsets = assignment.assign(5, [2, 1, 3])
        before = list(base_offsets)
        assignment.assign(1_000, [4, 4])
        assert list(base_offsets) == before, "a later call changed the sequence that an earlier one gave"

    def test_its_arguments_are_left_alone_and_may_be_any_sequence(self, make_assignment: MakeAssignment) -> None:
        @_some
        @given(next_offset=_next_offsets, record_counts=_counts)
        def holds(next_offset: int, record_counts: list[int]) -> None:
            given_counts = list(record_counts)
            from_list = list(make_assignment().assign(next_offset, given_counts))
            assert given_counts == record_counts, "the record counts were changed"
            from_tuple = list(make_assignment().assign(next_offset, tuple(record_counts)))
            assert from_tuple == from_list, "a tuple gives the same offsets as a list"

        holds()
