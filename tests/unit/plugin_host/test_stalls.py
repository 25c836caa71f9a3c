"""A plugin that blocks the event loop is named; nobody else is."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time

import pytest
import structlog
from structlog.testing import capture_logs

from diskless_core import logs
from diskless_core.clock import SystemClock
from diskless_core.plugin_host import stalls
from diskless_core.plugin_host.guarded import guarded
from diskless_core.plugin_host.health import HealthBook
from diskless_core.plugin_host.stalls import LoopWatch, blamed_s, culprit
from diskless_core.testing.fakes.objects import MemoryWalObjectStore

PLUGIN = "wal_object_store.vendor"


def in_module(name, code="def call(inner): return inner()"):
    """A function `call` of a module of this name."""
    scope = {"__name__": name}
    exec(code, scope)
    return scope["call"]


def blamed(*modules):
    """Who is blamed for a stack of these modules, the innermost last. Frames outside belong to the test."""

    def inner():
        return culprit(sys._getframe(), {"acme": PLUGIN, "acme.log": "coordinator_log.acme"})

    for module in reversed(modules):
        inner = (lambda call, rest: lambda: call(rest))(in_module(module), inner)
    return inner()


@pytest.mark.parametrize(
    ("modules", "plugin"),
    [
        (["diskless_core.broker.x", "acme.store"], PLUGIN),
        (["diskless_core.broker.x", "acme.store", "socket"], PLUGIN),
        (["diskless_core.broker.x", "acme.log.reader"], "coordinator_log.acme"),
        (["acme.store", "diskless_core.log.segments"], PLUGIN),
        (["acme.store", "diskless_core.produce.writer"], None),
        (["diskless_core.broker.x", "json"], None),
        (["acmeology.store"], None),
    ],
)
def test_the_stack_says_whose_stall_it_is(modules, plugin):
    assert blamed(*modules) == plugin


def test_nobody_is_blamed_for_what_the_machine_did():
    assert blamed_s(0.5, 0.0, 0.0) == 0.5
    assert blamed_s(0.5, 0.45, 0.0) == pytest.approx(0.05)
    assert blamed_s(0.5, 0.0, 0.6) == 0


class Blocking(MemoryWalObjectStore):
    """Blocks until something has been seen, or the time is over."""

    def __init__(self, seen):
        super().__init__(SystemClock())
        self._seen = seen

    async def get(self, *_):
        ends = time.monotonic() + 20
        while not self._seen() and time.monotonic() < ends:
            time.sleep(0.01)  # noqa: ASYNC251  what such a plugin does wrong
        return b""


async def test_a_blocked_loop_is_put_down_to_the_plugin_that_blocks_it():
    book = HealthBook()
    health = book.of("wal_object_store", "vendor")
    other = book.of("coordinator_log", "local")
    store = guarded("wal_object_store", "vendor", Blocking(lambda: health.stall_s > 0.3), (), health=health)
    watch = LoopWatch(book, SystemClock(), dict, run_delay_s=lambda: 0.0)

    with capture_logs() as logged:
        watch.start()
        try:
            await store.get("x", 0, 1)
        finally:
            watch.stop()

    assert (health.stalls, other.stalls) == (1, 0)
    [line] = [entry for entry in logged if "blocks the event loop" in entry["event"]]
    assert line["plugin"] == PLUGIN
    assert "get (" in line["stack"]


@pytest.fixture(params=["text", "json"])
def written(request):
    """What a broker with this `log.format` writes."""
    stream = io.StringIO()
    logs.configure(request.param, "info", 1, stream=stream)
    # The module's logger may have been used before, and keeps what held then.
    before, stalls._log = stalls._log, structlog.get_logger(stalls.__name__)
    yield stream.getvalue
    stalls._log = before
    structlog.reset_defaults()


async def test_the_stack_of_a_stall_is_logged_in_every_format_and_the_watch_goes_on(written, monkeypatch):
    monkeypatch.setattr(stalls, "REPORT_AGAIN_S", 0.0)
    health = HealthBook().of("wal_object_store", "vendor")
    book = [health]
    watch = LoopWatch(book, SystemClock(), dict, run_delay_s=lambda: 0.0)
    watch.start()
    try:
        for stalled_s in (0.3, 0.6):
            blocking = Blocking(lambda until_s=stalled_s: health.stall_s > until_s)
            await guarded("wal_object_store", "vendor", blocking, (), health=health).get("x", 0, 1)
            await asyncio.sleep(0.2)
    finally:
        watch.stop()

    assert health.stalls == 2
    assert written().count("blocks the event loop") >= 2
    assert "get (" in written()


async def test_a_loop_that_waits_for_a_processor_is_nobodys_fault():
    book = HealthBook()
    health = book.of("wal_object_store", "vendor")
    looked = threading.Event()

    def run_delay_s():
        if delays.pop(0) if len(delays) > 1 else delays[0]:
            looked.set()
            return 1e6
        return 0.0

    delays = [0, 1]
    store = guarded("wal_object_store", "vendor", Blocking(looked.is_set), (), health=health)
    watch = LoopWatch(book, SystemClock(), dict, run_delay_s=run_delay_s)
    watch.start()
    try:
        await asyncio.sleep(0)
        await store.get("x", 0, 1)
    finally:
        watch.stop()

    assert health.stalls == 0


async def test_the_watch_ends_while_its_loop_is_blocked(monkeypatch):
    monkeypatch.setattr(stalls, "BEAT_S", 0.001)
    before = threading.active_count()
    for _ in range(20):
        watch = LoopWatch(HealthBook(), SystemClock(), dict)
        watch.start()
        watch.stop()

    assert threading.active_count() <= before
