"""How much of the log lies beyond an offset, as far as a process has applied it."""

from __future__ import annotations

import pytest

from diskless_core.coordinator import applied_bytes
from diskless_core.coordinator.applied_bytes import AppliedBytes

KIB = 1 << 10


def applied(count: int, size_bytes: int, first: int = 100) -> AppliedBytes:
    """Entries of two offsets each."""
    found = AppliedBytes()
    for number in range(count):
        found.add(first + 2 * number, first + 2 * number + 2, size_bytes)
    return found


@pytest.mark.parametrize(("offset", "below"), [(0, 0), (100, 0), (102, KIB), (600, 250 * KIB), (2_100, 1_000 * KIB)])
def test_entries_of_one_size_are_counted_exactly(offset: int, below: int) -> None:
    assert applied(1_000, KIB).up_to(offset) == below


def test_what_was_applied_before_larger_entries_is_told_from_them_within_a_mark() -> None:
    found = applied(10_000, KIB)
    middle = 100 + 20_000
    for number in range(100):
        found.add(middle + number, middle + number + 1, 256 * KIB)
    assert abs(found.up_to(middle) - 10_000 * KIB) <= 2 * applied_bytes.MARK_BYTES
    assert found.total - found.up_to(middle + 50) == pytest.approx(50 * 256 * KIB, abs=applied_bytes.MARK_BYTES)


def test_nothing_is_known_of_what_lies_before_the_oldest_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applied_bytes, "MARKS", 4)
    found = applied(100, applied_bytes.MARK_BYTES)
    assert found.up_to(150) == 0
    assert found.up_to(298) == 99 * applied_bytes.MARK_BYTES


def test_a_process_that_has_applied_nothing_has_nothing_below_any_offset() -> None:
    assert AppliedBytes().up_to(7) == 0
