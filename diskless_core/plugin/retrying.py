"""The one policy of backing off, and the loop that repeats a step by it, a few times or until it works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog
from tenacity import RetryCallState

from diskless_core.clock import Clock
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.plugin.wal_object_store import WalObjectStoreError

T = TypeVar("T")

FailureReport = Callable[[BaseException, int], None]
"""Told of an error after which the step is repeated, and of how many tries have failed so far."""

_log = structlog.get_logger(__name__)


def is_retriable(error: BaseException) -> bool:
    """Whether an object store or remote storage can do later what it could not do now."""
    return isinstance(error, RemoteStorageError | WalObjectStoreError) and error.retriable


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often a step is tried, and how long the pauses are.

    Attributes:
        first_ms: the first pause; each is twice as long as the one before.
        max_ms: the longest one, before jitter.
        jitter: by which part of itself a pause may be shorter or longer, 0 to 1.
        attempts: of all tries; None if it is tried until it works.
    """

    first_ms: int
    max_ms: int
    jitter: float = 0.5
    attempts: int | None = None

    def pause_s(self, failures: int, clock: Clock) -> float:
        """How long to wait after so many failures in a row, in seconds."""
        pause_ms = min(self.max_ms, self.first_ms * 2.0 ** min(failures - 1, 30))
        return pause_ms / 1000 * (1 + self.jitter * (2 * clock.random().random() - 1))

    def wait(self, clock: Clock) -> Callable[[RetryCallState], float]:
        """The pauses in the form that tenacity asks for."""
        return lambda state: self.pause_s(state.attempt_number, clock)


def _report(error: BaseException, failures: int) -> None:
    _log.warning("a step failed and is tried again", attempt=failures, error=str(error))


class Retrying:
    """Tries steps that can be repeated. Steps that work the first time cost nothing: they are on hot paths."""

    def __init__(
        self,
        backoff: Backoff,
        clock: Clock,
        *,
        is_retriable: Callable[[BaseException], bool] = is_retriable,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.backoff = backoff
        self._clock = clock
        self._is_retriable = is_retriable
        self._sleep = sleep

    async def do(self, step: Callable[[], Awaitable[T]], report: FailureReport = _report) -> T:
        """Do a step that can be repeated, until it works or cannot any more; its last error is the caller's."""
        failures = 0
        while True:
            try:
                return await step()
            except Exception as error:
                failures += 1
                if failures == self.backoff.attempts or not self._is_retriable(error):
                    raise
                report(error, failures)
            await self._sleep(self.pause_s(failures))

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row, in seconds."""
        return self.backoff.pause_s(failures, self._clock)
