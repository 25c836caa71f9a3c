"""How long the contract suites wait for what has to happen, and what they say when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

DEFAULT_S = 300.0
"""Longer than any machine needs that has much else to do."""

_limit_s = DEFAULT_S


def wait_at_most(limit_s: float) -> None:
    """From now on all suites of this process wait so long, in seconds, and no longer."""
    global _limit_s
    _limit_s = limit_s


def limit_s() -> float:
    """How long to wait, in seconds."""
    return _limit_s


@asynccontextmanager
async def within(what: str, most_s: float = DEFAULT_S) -> AsyncIterator[None]:
    """What is done inside has to end in time.

    Args:
        what: the promise that it keeps, as a clause: "an append ends".
        most_s: where the promise itself names a time, in seconds: no longer than that.

    Raises:
        AssertionError: it did not; the message has the promise.
    """
    seconds = min(_limit_s, most_s)
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AssertionError(f"{what}: that has not happened within {seconds:g} s") from error
