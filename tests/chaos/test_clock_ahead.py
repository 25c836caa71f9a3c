"""A broker whose clock is set ahead really believes it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.chaos.cluster import clock_ahead

MINUTE_MS = 60_000


def test_a_process_with_the_clock_ahead_takes_its_time_from_there() -> None:
    asked = (
        "from diskless_core.clock import SystemClock as C; import time; print(C().now_ms(), int(1000 * time.time()))"
    )
    before_ms = time.time_ns() // 10**6
    answer = subprocess.run(
        [sys.executable, "-c", asked], env=os.environ | clock_ahead(), check=True, capture_output=True
    )
    after_ms = time.time_ns() // 10**6
    for told_ms in map(int, answer.stdout.split()):
        assert before_ms <= told_ms - 10 * MINUTE_MS <= after_ms
