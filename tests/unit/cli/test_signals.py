"""Which signals ask a process to end in good order."""

from __future__ import annotations

import signal

import pytest

from diskless_core.cli.signals import stop_signals


@pytest.mark.parametrize(("inherited", "stops"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)])
def test_a_closed_terminal_ends_a_process_unless_it_was_started_with_nohup(
    inherited: signal.Handlers, stops: bool
) -> None:
    before = signal.signal(signal.SIGHUP, inherited)
    try:
        assert (signal.SIGHUP in stop_signals()) == stops
        assert {signal.SIGTERM, signal.SIGINT} <= set(stop_signals())
    finally:
        signal.signal(signal.SIGHUP, before)
