"""What a broker whose clock is wrong calls its objects, and whom it tells."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from diskless_core.diskless.commands import BatchResult
from diskless_core.metrics import Metrics
from diskless_core.produce.object_time import TOLERANCE_MS, ObjectTime
from diskless_core.protocol.errors import ErrorCode

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class SettableClock:
    """A wall clock that may be set, and a monotonic one that may not."""

    def __init__(self) -> None:
        self.wall_ms = NOW_MS
        self.elapsed_ms = 5_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        self.wall_ms += ms
        self.elapsed_ms += ms


def refused(time_ms: int) -> list[BatchResult]:
    return [BatchResult(ErrorCode.KAFKA_STORAGE_ERROR, append_time=time_ms)] * 2


def committed(time_ms: int) -> list[BatchResult]:
    return [BatchResult(ErrorCode.NONE, 7, time_ms)]


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def time(clock: SettableClock, metrics: Metrics) -> ObjectTime:
    return ObjectTime(clock, metrics)


def seconds(metrics: Metrics, which: str) -> float | None:
    return metrics.registry.get_sample_value(f"diskless_clock_{which}_seconds")


def test_as_long_as_nobody_objects_it_is_the_clocks_time(time, clock):
    for _ in range(3):
        assert time.now_ms() == clock.wall_ms
        time.learn("k", clock.wall_ms, committed(clock.wall_ms + 20))
        clock.advance(250)
    clock.wall_ms -= DAY_MS
    assert time.now_ms() == clock.wall_ms


def test_after_a_refusal_keys_go_by_the_coordinators_clock(time, clock, metrics):
    with capture_logs() as logs:
        time.learn("wal/k", clock.wall_ms, refused(NOW_MS + 2 * DAY_MS))
    assert [(line["log_level"], line["object"], line["clock_behind_ms"]) for line in logs] == [
        ("warning", "wal/k", 2 * DAY_MS)
    ]
    assert time.now_ms() == NOW_MS + 2 * DAY_MS
    assert seconds(metrics, "behind") == 2 * 86_400
    clock.advance(DAY_MS)
    assert time.now_ms() == NOW_MS + 3 * DAY_MS


def test_one_coordinator_that_refuses_is_enough(time):
    time.learn("k", NOW_MS, committed(NOW_MS) + refused(NOW_MS + DAY_MS) + committed(NOW_MS))
    assert time.now_ms() == NOW_MS + DAY_MS


def test_when_the_clock_is_set_right_it_is_followed_again(time, clock, metrics):
    time.learn("k", clock.wall_ms, refused(NOW_MS + DAY_MS))
    clock.advance(1_000)
    clock.wall_ms += DAY_MS + 5
    assert time.now_ms() == clock.wall_ms
    assert seconds(metrics, "behind") == 0


def test_an_object_that_took_too_long_says_nothing_of_the_clock(time, clock, metrics):
    created_ms = time.now_ms()
    clock.advance(2 * DAY_MS)
    with capture_logs() as logs:
        time.learn("k", created_ms, refused(clock.wall_ms - 10))
    assert [line["clock_behind_ms"] for line in logs] == [0]
    assert time.now_ms() == clock.wall_ms
    assert seconds(metrics, "behind") == 0


def test_an_earlier_refusal_that_comes_late_does_not_set_the_time_back(time):
    time.learn("k", NOW_MS, refused(NOW_MS + DAY_MS))
    time.learn("j", NOW_MS, refused(NOW_MS + DAY_MS - 1_000))
    assert time.now_ms() == NOW_MS + DAY_MS


def test_a_clock_that_is_ahead_is_told_once_and_again_when_it_was_right_in_between(time, metrics):
    with capture_logs() as logs:
        for ahead_ms in (0, TOLERANCE_MS, TOLERANCE_MS + 1, DAY_MS, -5, DAY_MS):
            time.learn("k", NOW_MS + ahead_ms, committed(NOW_MS))
    assert [line["clock_ahead_ms"] for line in logs] == [TOLERANCE_MS + 1, DAY_MS]
    assert seconds(metrics, "ahead") == 86_400
    time.learn("k", NOW_MS, committed(NOW_MS + 20))
    assert seconds(metrics, "ahead") == 0


@pytest.mark.parametrize(
    "result",
    [
        BatchResult(ErrorCode.NONE, 7, NOW_MS - DAY_MS, is_duplicate=True),
        BatchResult(ErrorCode.UNKNOWN_TOPIC_ID),
        BatchResult(ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_says_nothing_of_the_time_is_passed_over(time, metrics, result):
    with capture_logs() as logs:
        time.learn("k", NOW_MS, [result])
        time.learn("k", NOW_MS, [])
    assert logs == []
    assert time.now_ms() == NOW_MS
    assert seconds(metrics, "ahead") == 0
