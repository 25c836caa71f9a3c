"""How much of an object is read at once by a broker that reads for others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.fetch.planner import MAX_RANGE_BYTES, ObjectRange
from diskless_core.fetch.widening import GROWTH, OBJECTS, Widening

KIB = 1 << 10
OBJECT_BYTES = 8 << 20


def test_the_first_range_of_an_object_is_read_as_it_is_wanted() -> None:
    wanted = ObjectRange("a", 5_000, 9_000)
    assert Widening().widened(wanted) == wanted


def test_the_next_ones_are_blocks_that_grow() -> None:
    widening = Widening()
    widening.widened(ObjectRange("a", 0, 64 * KIB))
    assert widening.widened(ObjectRange("a", 300 * KIB, 310 * KIB)) == ObjectRange("a", 256 * KIB, 512 * KIB)
    assert widening.widened(ObjectRange("a", 3000 * KIB, 3010 * KIB)) == ObjectRange("a", 2048 * KIB, 4096 * KIB)
    assert widening.widened(ObjectRange("b", 1, 2)) == ObjectRange("b", 1, 2)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, OBJECT_BYTES), st.integers(1, MAX_RANGE_BYTES)).map(
            lambda place: ObjectRange("a", place[0], place[0] + place[1])
        ),
        min_size=1,
        max_size=30,
    )
)
def test_what_is_wanted_is_always_read_and_never_more_than_a_range_may_have(wanted: list[ObjectRange]) -> None:
    widening = Widening()
    for one in wanted:
        chosen = widening.widened(one)
        assert chosen.covers(one)
        assert chosen.size_bytes <= MAX_RANGE_BYTES


@settings(deadline=None)
@given(size=st.integers(64 * KIB, 512 * KIB))
def test_readers_of_all_parts_need_few_requests(size: int) -> None:
    widening, read, requests = Widening(), list[ObjectRange](), 0
    for start in range(0, OBJECT_BYTES, size):
        wanted = ObjectRange("a", start, min(start + size, OBJECT_BYTES))
        if not any(one.covers(wanted) for one in read):
            requests += 1
            read.append(widening.widened(wanted))
    assert requests <= 2 * 14  # the block doubles twice with each, and a range may lie across two


@settings(deadline=None)
@given(first=st.integers(1, 256 * KIB), place=st.integers(0, OBJECT_BYTES))
def test_no_block_is_much_larger_than_all_that_was_wanted_before(first: int, place: int) -> None:
    widening = Widening()
    widening.widened(ObjectRange("a", 0, first))
    chosen = widening.widened(ObjectRange("a", place, place + first))
    assert chosen.size_bytes <= 2 * 2 * GROWTH * first


def test_it_forgets_the_objects_that_were_read_longest_ago() -> None:
    widening = Widening()
    for number in range(OBJECTS + 1):
        widening.widened(ObjectRange(str(number), 0, 10))
    assert widening.widened(ObjectRange("0", 20, 30)) == ObjectRange("0", 20, 30)
    assert widening.widened(ObjectRange(str(OBJECTS), 20, 30)).size_bytes > 10
