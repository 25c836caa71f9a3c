"""Idempotence as Apache Kafka has it, batch by batch."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.diskless import producer_state
from diskless_core.diskless.producer_state import MAX_SEQUENCE, ProducerWindow, WindowBatch
from diskless_core.passed_time import Passed
from diskless_core.protocol.errors import ErrorCode

NONE, DUPLICATE, OUT_OF_ORDER, FENCED = (
    ErrorCode.NONE,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def window_of(*ranges: tuple[int, int], epoch: int = 1, time_ms: int = 0) -> ProducerWindow:
    """As if batches of these sequence ranges had been appended, at offsets 100, 200, ..."""
    window: ProducerWindow | None = None
    for number, (first, last) in enumerate(ranges, start=1):
        window = producer_state.extend(window, epoch, WindowBatch(first, last, number * 100, time_ms))
    assert window is not None
    return window


def parts(window: ProducerWindow) -> tuple[int, tuple[WindowBatch, ...], int]:
    return producer_state.epoch_of(window), producer_state.batches_of(window), producer_state.last_append_time(window)


def judged(
    window: ProducerWindow | None, epoch: int, first: int, last: int, *, may_be_forgotten: bool = False
) -> tuple[ErrorCode, int | None]:
    error, original = producer_state.check(window, epoch, first, last, may_be_forgotten=may_be_forgotten)
    return error, original.base_offset if original is not None else None


@pytest.mark.parametrize("first", [0, 7, MAX_SEQUENCE])
def test_a_producer_that_may_be_forgotten_goes_on_with_any_sequence(first: int) -> None:
    assert judged(None, 0, first, first, may_be_forgotten=True) == (NONE, None)


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_producer_that_nobody_forgot_begins_at_0(epoch: int) -> None:
    assert judged(None, epoch, 0, 4) == (NONE, None)
    assert judged(None, epoch, 5, 9) == (OUT_OF_ORDER, None)


def test_the_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    window = window_of((0, 4))
    assert judged(window, 1, 5, 9) == (NONE, None)
    assert judged(window, 1, 6, 9) == (OUT_OF_ORDER, None)


def test_any_of_the_last_five_batches_is_a_duplicate_with_its_original_offset_and_an_older_one_without() -> None:
    window = window_of(*((number, number) for number in range(7)))
    assert [judged(window, 1, number, number) for number in range(7)] == [
        (DUPLICATE, None),
        (DUPLICATE, None),
        *((NONE, number * 100) for number in range(3, 8)),
    ]


@pytest.mark.parametrize("began", [0, 100, MAX_SEQUENCE - 10, MAX_SEQUENCE])
def test_what_came_before_a_producer_began_is_not_known_to_be_there(began: int) -> None:
    window = window_of(*(((began + 2 * n) & MAX_SEQUENCE, (began + 2 * n + 1) & MAX_SEQUENCE) for n in range(10)))

    def at(first: int, last: int) -> tuple[ErrorCode, int | None]:
        return judged(window, 1, (began + first) & MAX_SEQUENCE, (began + last) & MAX_SEQUENCE)

    assert producer_state.preceding_of(window) == 10
    for first, last in [(0, 1), (8, 9), (0, 9), (3, 6), (0, 0), (9, 9)]:
        assert at(first, last) == (DUPLICATE, None)
    for first, last in [(-1, 0), (-2, -1), (-1, -1), (-1000, -999), (-1, 9), (-1, 20)]:
        assert at(first, last) == (OUT_OF_ORDER, None)
    for first, last in [(9, 10), (9, 19), (9, 20), (0, 19), (10, 10), (11, 12), (21, 21), (22, 23), (1_000, 1_001)]:
        assert at(first, last) == (OUT_OF_ORDER, None)


def test_a_new_epoch_and_a_gap_forget_what_was_before() -> None:
    window = window_of(*((number, number) for number in range(9)))
    for renewed, epoch in [
        (producer_state.extend(window, 2, WindowBatch(0, 0, 900, 0)), 2),
        (producer_state.extend(window, 1, WindowBatch(20, 20, 900, 0)), 1),
    ]:
        assert producer_state.preceding_of(renewed) == 0
        assert judged(renewed, epoch, 19, 19) == (OUT_OF_ORDER, None)
        assert judged(renewed, epoch, 2, 2) == (OUT_OF_ORDER, None)


def test_half_of_all_sequences_are_retries_of_a_producer_that_has_gone_round_and_the_others_are_to_come() -> None:
    quarter = 2**29
    window = window_of(
        *((quarter * n & MAX_SEQUENCE, quarter * (n + 1) - 1 & MAX_SEQUENCE) for n in range(8)),
        *((number, number) for number in range(5)),
    )
    assert producer_state.preceding_of(window) == producer_state.MAX_PRECEDING == 2 * quarter
    assert judged(window, 1, MAX_SEQUENCE, MAX_SEQUENCE) == (DUPLICATE, None)
    assert judged(window, 1, 2 * quarter, 2 * quarter) == (DUPLICATE, None)
    assert judged(window, 1, 2 * quarter - 1, 2 * quarter) == (OUT_OF_ORDER, None)
    assert judged(window, 1, 6, 6) == (OUT_OF_ORDER, None)


@pytest.mark.parametrize(("first", "last"), [(0, 3), (0, 5), (1, 4)])
def test_a_range_that_only_overlaps_a_batch_is_no_duplicate_of_it(first: int, last: int) -> None:
    assert judged(window_of((0, 4)), 1, first, last) == (OUT_OF_ORDER, None)


def test_a_lower_epoch_is_fenced_even_when_its_sequence_would_follow_or_repeat() -> None:
    window = window_of((0, 4), epoch=3)
    assert judged(window, 2, 5, 5) == (FENCED, None)
    assert judged(window, 2, 0, 4) == (FENCED, None)
    assert judged(window, 2, 0, 0) == (FENCED, None)


def test_a_higher_epoch_begins_at_sequence_0_whatever_was_before() -> None:
    window = window_of((0, 4))
    assert judged(window, 2, 0, 4) == (NONE, None)
    assert judged(window, 2, 5, 5) == (OUT_OF_ORDER, None)
    renewed = producer_state.extend(window, 2, WindowBatch(0, 0, 900, 0))
    assert producer_state.batches_of(renewed) == (WindowBatch(0, 0, 900, 0),)
    assert judged(renewed, 1, 5, 5) == (FENCED, None)


def test_sequences_wrap_between_batches_and_inside_one() -> None:
    assert judged(window_of((MAX_SEQUENCE - 1, MAX_SEQUENCE)), 1, 0, 3) == (NONE, None)
    assert producer_state.last_sequence(MAX_SEQUENCE - 1, 5) == 2
    inside = window_of((MAX_SEQUENCE - 1, 2))
    assert judged(inside, 1, 3, 3) == (NONE, None)
    assert judged(inside, 1, MAX_SEQUENCE - 1, 2) == (NONE, 100)
    assert judged(inside, 1, 0, 2) == (OUT_OF_ORDER, None)


def test_a_window_lives_as_long_as_the_expiration_says_and_not_longer() -> None:
    window = window_of((0, 0), time_ms=1000)
    assert not producer_state.is_expired(window, Passed(now_ms=1499), 500)
    assert producer_state.is_expired(window, Passed(now_ms=1500), 500)
    assert not producer_state.is_expired(window, Passed(now_ms=0), 500)


def test_a_window_is_small_and_none_of_the_garbage_collectors_business() -> None:
    windows = [window_of(*((number, number) for number in range(count))) for count in (1, 5, 9)]
    assert [sys.getsizeof(window) for window in windows] == [63, 159, 159]
    assert not any(map(gc.is_tracked, windows))


def test_after_a_gap_the_window_remembers_nothing_of_before() -> None:
    window = producer_state.extend(window_of((0, 4)), 1, WindowBatch(50, 59, 900, 7))
    assert parts(window) == (1, (WindowBatch(50, 59, 900, 7),), 7)


@given(counts=st.lists(st.integers(1, 1000), min_size=1, max_size=20), first=st.integers(0, MAX_SEQUENCE))
def test_an_unbroken_producer_is_accepted_batch_by_batch_and_every_recent_retry_is_found(
    counts: list[int], first: int
) -> None:
    window: ProducerWindow | None = None
    sent: list[WindowBatch] = []
    for offset, count in enumerate(counts):
        last = producer_state.last_sequence(first, count)
        if window is not None:
            assert judged(window, 0, first, last) == (NONE, None)
        sent.append(WindowBatch(first, last, offset, 0))
        window = producer_state.extend(window, 0, sent[-1])
        first = (last + 1) % (MAX_SEQUENCE + 1)
        for one in sent[-5:]:
            assert judged(window, 0, one.base_sequence, one.last_sequence) == (NONE, one.base_offset)
        for one in sent[:-5]:
            assert judged(window, 0, one.base_sequence, one.last_sequence) == (DUPLICATE, None)
    assert window is not None
    assert producer_state.preceding_of(window) == sum(counts[:-5])
    epoch, _, preceding, batches = producer_state.pack(window)
    assert producer_state.unpack(epoch, preceding, batches) == window
