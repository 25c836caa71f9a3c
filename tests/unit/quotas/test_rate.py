"""How long a client is throttled, against a model that looks at all that ever happened, and against Apache Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.quotas.rate import MAX_THROTTLE_MS, Rate, Window

KAFKAS_DEFAULT = Window(samples=11, sample_ms=1000)

windows = st.builds(Window, samples=st.integers(1, 12), sample_ms=st.sampled_from([1, 10, 1000, 5000]))
steps = st.lists(st.tuples(st.integers(0, 15_000), st.integers(-50, 5000)), min_size=1, max_size=60)


def model_throttle_ms(events: Sequence[tuple[int, int]], window: Window, limit: float) -> int:
    """From all events, as (time, amount), at the time of the last one."""
    now = events[-1][0]
    samples: list[list[tuple[int, int]]] = []
    for event in events:
        if samples and event[0] - samples[-1][0][0] < window.sample_ms:
            samples[-1].append(event)
        else:
            samples.append([event])
    counted = [sample for sample in samples[-window.samples - 1 :] if now - sample[-1][0] < window.length_ms]
    elapsed = now - counted[0][0][0]
    while elapsed < (window.samples - 1) * window.sample_ms:
        elapsed += window.sample_ms
    rate = sum(amount for sample in counted for _, amount in sample) / max(elapsed, 1) * 1000
    return max(round((rate - limit) / limit * max(elapsed, 1)), 0)


@given(windows, steps, st.floats(0.5, 10_000))
def test_the_throttle_time_is_that_of_the_model(window: Window, moves: list[tuple[int, int]], limit: float) -> None:
    rate, now, events = Rate(window), 0, []
    for pause, amount in moves:
        now += pause
        rate.record(amount, now)
        events.append((now, amount))
        wanted = min(model_throttle_ms(events, window, limit), MAX_THROTTLE_MS)
        assert rate.throttle_ms(limit, now) == pytest.approx(wanted, abs=1)


@settings(max_examples=50)
@given(st.integers(1000, 100_000), st.lists(st.floats(0.01, 1), min_size=100, max_size=100))
def test_a_client_that_waits_as_long_as_it_is_told_stays_within_its_quota(limit: int, seconds: list[float]) -> None:
    """Each request has up to a second's worth. One larger than the window is forgotten before it is paid off, as in
    Apache Kafka.
    """
    rate, now, total = Rate(KAFKAS_DEFAULT), 0, 0.0
    for worth in seconds:
        rate.record(limit * worth, now)
        total += limit * worth
        now += rate.throttle_ms(limit, now)
        assert total <= limit * (now + KAFKAS_DEFAULT.length_ms + 1000) / 1000


@pytest.mark.parametrize(
    ("events", "limit", "window_ms", "expected"),
    [
        ([(0, 10_000)], 1000, 10_000, 0),
        ([(0, 10_001)], 1000, 10_000, 1),
        ([(0, 30_000)], 1000, 10_000, 20_000),
        ([(0, 5000), (5500, 10_000)], 1000, 10_500, 4500),
        ([(0, 5000), (10_999, 20_000)], 1000, 10_999, 14_001),
        ([(0, 5000), (11_000, 20_000)], 1000, 10_000, 10_000),
    ],
)
def test_throttle_times_are_those_that_apache_kafka_4_computes(events, limit, window_ms, expected):
    """The numbers come from Rate and QuotaUtils of Apache Kafka 4.3 with the default window."""
    rate = Rate(KAFKAS_DEFAULT)
    for now, amount in events:
        rate.record(amount, now)

    assert rate.throttle_ms(limit, events[-1][0]) == expected
    assert sum(amount for _, amount in events) >= limit * window_ms / 1000 or expected == 0


def test_what_is_taken_back_does_not_count():
    rate = Rate(KAFKAS_DEFAULT)
    rate.record(50_000, 0)
    rate.record(-50_000, 0)
    rate.record(10_000, 1)

    assert rate.throttle_ms(1000, 1) == 0


def test_a_throttle_time_fits_in_a_response():
    rate = Rate(KAFKAS_DEFAULT)
    rate.record(2**40, 0)

    assert rate.throttle_ms(1, 0) == MAX_THROTTLE_MS


def test_a_rate_is_forgotten_when_its_last_sample_is_as_old_as_the_window():
    rate = Rate(KAFKAS_DEFAULT)
    assert rate.is_forgotten(0)
    rate.record(1, 0)
    rate.record(1, 999)

    assert not rate.is_forgotten(11_998)
    assert rate.is_forgotten(11_999)
