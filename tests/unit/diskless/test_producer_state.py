"""Idempotence as Apache Kafka has it, batch by batch."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.diskless import producer_state
from diskless_core.diskless.producer_state import MAX_SEQUENCE, ProducerWindow, WindowBatch
from diskless_core.protocol.errors import ErrorCode

NONE, OUT_OF_ORDER, FENCED = (
    ErrorCode.NONE,
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


def test_any_of_the_last_five_batches_is_a_duplicate_with_its_original_offset_and_an_older_one_out_of_order() -> None:
    window = window_of(*((number, number) for number in range(7)))
    assert [judged(window, 1, number, number) for number in range(7)] == [
        (OUT_OF_ORDER, None),
        (OUT_OF_ORDER, None),
        *((NONE, number * 100) for number in range(3, 8)),
    ]


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
    assert not producer_state.is_expired(window, 1499, 500)
    assert producer_state.is_expired(window, 1500, 500)
    assert not producer_state.is_expired(window, 0, 500)


def test_a_window_is_small_and_none_of_the_garbage_collectors_business() -> None:
    windows = [window_of(*((number, number) for number in range(count))) for count in (1, 5, 9)]
    assert [sys.getsizeof(window) for window in windows] == [59, 155, 155]
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
    assert window is not None
    epoch, _, batches = producer_state.pack(window)
    assert producer_state.unpack(epoch, batches) == window
