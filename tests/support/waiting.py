"""Waits for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 300.0
_PAUSE_S = 0.02

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str) -> T:
    """The condition's first true value.

    Raises:
        AssertionError: with `what` did not come to be.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(_PAUSE_S)
    return found
