"""What operators are told of a backend: its calls, its errors, its time."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from prometheus_client.parser import text_string_to_metric_families

from diskless_core.clock import SystemClock
from diskless_core.metrics import Metrics
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError
from diskless_core.plugin_host.guarded import guarded
from diskless_core.plugin_host.guarding import Guard
from diskless_core.plugin_host.health import Health, HealthBook, Result, State
from diskless_core.testing.fakes.objects import MemoryWalObjectStore


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def health():
    return Health("wal_object_store", "vendor")


def guard_of(health, clock, due=WalObjectStoreError, **options):
    return Guard(health, due, ["hunter2"], clock=clock, **options)


def test_a_call_is_counted_and_timed(health, clock):
    with guard_of(health, clock).call("get"):
        assert health.under_way == 1
        clock.now_s += 0.3

    assert (health.calls, health.under_way, health.results[Result.OK]) == (1, 0, 1)
    assert health.as_json()["seconds_sum"] == pytest.approx(0.3)
    assert health.quantile(0.99) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ObjectNotFoundError("x"), Result.ERROR),
        (ValueError("x"), Result.FOREIGN),
        (asyncio.CancelledError(), Result.CANCELLED),
    ],
)
def test_errors_are_told_apart(health, clock, error, result):
    with pytest.raises(BaseException), guard_of(health, clock).call("get"):  # noqa: B017
        raise error

    assert dict(health.results) == {result: 1}


def test_a_policys_own_exception_is_foreign_and_passes_as_it_is(clock):
    health = Health("offset_assignment", "vendor")
    guard = guard_of(health, clock, None)

    with pytest.raises(KeyError), guard.call("assign"):
        raise KeyError("x")
    with pytest.raises(PluginError), guard.call("assign"):
        raise PluginError("x")

    assert dict(health.results) == {Result.FOREIGN: 1, Result.ERROR: 1}


def test_the_last_error_has_no_secret_in_it_and_is_short(health, clock):
    with pytest.raises(WalObjectStoreError), guard_of(health, clock).call("put"):
        raise ValueError("denied to hunter2 " + "x" * 10_000)

    last = health.as_json()["last_error"]
    assert "hunter2" not in last["message"]
    assert last["message"].startswith("ValueError: denied to ****")
    assert len(last["message"]) <= 1000
    assert (last["method"], last["kind"], last["at_ms"]) == ("put", "foreign", 100_000)


def test_a_slow_call_is_found_while_it_runs_and_counted_once(health, clock):
    with guard_of(health, clock, expected_s=2.0).call("get"):
        clock.now_s += 1
        assert health.newly_slow(clock.now_s) == []
        clock.now_s += 2
        assert [call.method for call in health.newly_slow(clock.now_s)] == ["get"]
        assert health.newly_slow(clock.now_s) == []

    assert health.slow == 1


def test_what_the_caller_did_wrong_is_not_put_down_to_the_plugin(health, clock):
    own = ValueError("mine")

    with pytest.raises(ValueError, match="mine"), guard_of(health, clock).call("copy", unless=lambda e: e is own):
        raise own

    assert dict(health.results) == {Result.CANCELLED: 1}
    assert health.last_error is None


async def test_a_backend_that_did_not_start_is_said_to_have_failed(health):
    class Refusing(MemoryWalObjectStore):
        async def start(self):
            raise ValueError("no")

    store = guarded("wal_object_store", "vendor", Refusing(SystemClock()), (), health=health)
    assert health.state is State.MADE

    with pytest.raises(WalObjectStoreError):
        await store.start()

    assert health.state is State.FAILED


def test_a_policy_that_is_replaced_after_its_start_is_still_asked():
    class Policy(OffsetAssignment):
        def assign(self, *_):
            return "old"

    policy = Policy()
    behind_guard = guarded("offset_assignment", "vendor", policy, ())
    policy.assign = lambda *_: "new"

    assert behind_guard.assign(None, None) == "new"


def test_a_record_is_empty_in_another_process(health, clock):
    with guard_of(health, clock).call("get"):
        pass

    assert pickle.loads(pickle.dumps(health)).calls == 0


def test_the_metrics_have_what_the_record_has(clock):
    book, metrics = HealthBook(), Metrics()
    metrics.watch_plugins(book)
    with guard_of(book.of("wal_object_store", "vendor"), clock).call("get"):
        clock.now_s += 0.02

    families = text_string_to_metric_families(metrics.exposition().decode())
    found = {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}
    assert found["diskless_plugin_calls_total", "ok", "vendor", "wal_object_store"] == 1
    assert found["diskless_plugin_call_seconds_bucket", "0.01", "vendor", "wal_object_store"] == 0
    assert found["diskless_plugin_call_seconds_bucket", "0.025", "vendor", "wal_object_store"] == 1
    assert found["diskless_plugin_call_seconds_count", "vendor", "wal_object_store"] == 1
