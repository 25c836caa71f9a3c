"""How often the object store may be asked beside another broker."""

from __future__ import annotations

from diskless_core.fetch.second_reads import MOST_SAVED, ONE_IN, SecondReads


def taken(reads: SecondReads) -> int:
    count = 0
    while reads.take():
        count += 1
    return count


def test_the_first_late_answer_may_be_read_at_once() -> None:
    assert taken(SecondReads()) == 1


def test_so_many_requests_allow_one() -> None:
    reads = SecondReads()
    assert reads.take()
    for _ in range(ONE_IN - 1):
        reads.asked()
    assert not reads.take()
    reads.asked()
    assert taken(reads) == 1


def test_what_is_not_used_is_saved_within_a_bound() -> None:
    reads = SecondReads()
    for _ in range(100 * ONE_IN):
        reads.asked()
    assert taken(reads) == MOST_SAVED
