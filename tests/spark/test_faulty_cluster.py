"""Compactions come out right while Spark loses tasks and executors, on a small cluster of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
TIMEOUT_S = 1500


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_a_task_that_fails_an_executor_that_dies_and_a_straggler_are_made_good(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, PROJECT / "tests" / "spark" / "faulty_cluster.py", tmp_path],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert output.splitlines() == ["retry", "lost_executor", "straggler"], errors
