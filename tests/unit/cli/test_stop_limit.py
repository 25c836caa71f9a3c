"""Processes in which something hangs for ever: they end in time, with the right code."""

from __future__ import annotations

import subprocess
import sys

import pytest

HANGS = """
import sys, threading
from diskless_core.cli import stop_limit

stop_limit.THREADS_S = 0.05
threading.Thread(target=threading.Event().wait).start()
limit = stop_limit.StopLimit()
limit.begin(0.05 if sys.argv[1] == "stop" else 600)
limit.begin(600)
if sys.argv[1] == "thread":
    limit.stopped()
"""


@pytest.mark.parametrize(
    ("what", "code", "says"),
    [("thread", 0, "the process ends without it"), ("stop", 1, "the stop takes too long and is broken off")],
)
def test_nothing_that_hangs_keeps_a_process(what: str, code: int, says: str) -> None:
    done = subprocess.run([sys.executable, "-c", HANGS, what], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr
