"""Which runs retention removes, against Kafka's rules said as plainly as possible."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.files.retention import OFF, Piece, RetentionRules, expired, piece_of_run, piece_of_segment
from diskless_core.passed_time import Passed
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.wal.runs import Run
from tests.support.guarantees import guarantee

NOW_MS = 1_000
NOW = Passed(now_ms=NOW_MS)


def run_of(size: int, max_timestamp: int, append_time: int = NOW_MS) -> Piece:
    return piece_of_run(Run(0, 0, "object", 0, size, append_time, max_timestamp, 0))


def as_kafka_would(runs: Sequence[Piece], size_bytes: int, rules: RetentionRules) -> int:
    """How many go: by time from the oldest on, then by size, and again, until a check finds nothing more."""
    left = list(runs)
    before = None
    while before != len(left):
        before = len(left)
        while left and rules.retention_ms != OFF and NOW_MS - left[0].newest_ms > rules.retention_ms:
            size_bytes -= left.pop(0).size_bytes
        over = size_bytes - rules.retention_bytes
        while left and rules.retention_bytes != OFF and over - left[0].size_bytes >= 0:
            over -= left[0].size_bytes
            size_bytes -= left.pop(0).size_bytes
    return len(runs) - len(left)


runs = st.lists(st.builds(run_of, st.integers(1, 9), st.integers(-1, 1_010), st.integers(900, 1_000)), max_size=8)
limits = st.one_of(st.just(OFF), st.integers(0, 100))


@guarantee("Deletion and retention", "Retention removes what Apache Kafka would remove of the same batches.")
@given(runs=runs, newer_bytes=st.integers(0, 30), retention_ms=limits, retention_bytes=limits)
def test_it_removes_what_kafka_would_remove(
    runs: list[Piece], newer_bytes: int, retention_ms: int, retention_bytes: int
) -> None:
    rules = RetentionRules(retention_ms=retention_ms, retention_bytes=retention_bytes)
    size_bytes = sum(run.size_bytes for run in runs) + newer_bytes
    removed = expired(runs, size_bytes, rules, NOW)
    assert list(removed) == runs[: as_kafka_would(runs, size_bytes, rules)]
    assert not removed or rules.may_remove_from(size_bytes)


@given(runs=runs, retention_ms=limits, retention_bytes=limits, page=st.integers(1, 4))
def test_page_by_page_it_removes_the_same(
    runs: list[Piece], retention_ms: int, retention_bytes: int, page: int
) -> None:
    rules = RetentionRules(retention_ms=retention_ms, retention_bytes=retention_bytes)
    size_bytes = sum(run.size_bytes for run in runs)
    at_once = expired(runs, size_bytes, rules, NOW)
    removed: list[Piece] = []
    while some := runs[len(removed) : len(removed) + page]:
        gone = expired(some, size_bytes - sum(run.size_bytes for run in removed), rules, NOW)
        removed += gone
        if len(gone) < len(some):
            break
    assert removed == list(at_once)


@guarantee("Deletion and retention", "Retention by time and by size work alone and together, and -1 turns either off.")
@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "remaining"),
    [
        (OFF, OFF, 3),
        (100, OFF, 2),  # exactly as old as allowed is not too old
        (99, OFF, 1),
        (OFF, 30, 3),
        (OFF, 29, 3),  # without the oldest it would be smaller than asked for
        (OFF, 20, 2),
        (OFF, 0, 0),
        (99, 20, 1),
        (0, OFF, 1),  # the future stays
    ],
)
def test_time_and_size_work_alone_and_together(retention_ms: int, retention_bytes: int, remaining: int) -> None:
    runs = [run_of(10, NOW_MS - 101), run_of(10, NOW_MS - 100), run_of(10, NOW_MS + 500)]
    rules = RetentionRules(retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert len(runs) - len(expired(runs, 30, rules, NOW)) == remaining


@guarantee(
    "Deletion and retention",
    "By time, what is too old goes, oldest first; what comes after a record from the future is kept.",
)
def test_what_is_newer_in_time_keeps_what_came_after_it() -> None:
    runs = [run_of(10, NOW_MS + 500), run_of(10, 0)]
    assert not expired(runs, 20, RetentionRules(retention_ms=10, retention_bytes=OFF), NOW)


def test_without_timestamps_the_time_of_the_commit_counts() -> None:
    rules = RetentionRules(retention_ms=10, retention_bytes=OFF)
    assert expired([run_of(10, -1, NOW_MS - 11)], 10, rules, NOW)
    assert not expired([run_of(10, -1, NOW_MS - 10)], 10, rules, NOW)


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "size_bytes", "may"),
    [(OFF, OFF, 9, False), (5, OFF, 9, True), (5, OFF, 0, False), (OFF, 9, 9, False), (OFF, 9, 10, True)],
)
def test_a_partition_with_nothing_to_remove_is_not_looked_at(
    retention_ms: int, retention_bytes: int, size_bytes: int, may: bool
) -> None:
    rules = RetentionRules(retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert rules.may_remove_from(size_bytes) is may


@pytest.mark.parametrize(("max_timestamp", "latest_ms", "is_removed"), [(5, 500, True), (-1, 5, True), (-1, -1, False)])
def test_a_segment_of_which_no_age_is_known_does_not_go_by_age(
    max_timestamp: int, latest_ms: int, is_removed: bool
) -> None:
    segment = TieredSegment(b"s" * 16, 0, 9, 1000, max_timestamp)
    rules = RetentionRules(retention_ms=100, retention_bytes=OFF)
    assert rules.removes(piece_of_segment(segment, latest_ms), 1000, Passed(now_ms=1000)) is is_removed
