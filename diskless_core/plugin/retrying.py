"""Does a step again when it failed and can succeed: some times, at growing intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from diskless_core.clock import Clock
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.plugin.wal_object_store import WalObjectStoreError

T = TypeVar("T")

_log = structlog.get_logger(__name__)


def is_retriable(error: BaseException) -> bool:
    """Whether an object store or remote storage can do later what it could not do now."""
    return isinstance(error, RemoteStorageError | WalObjectStoreError) and error.retriable


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often a step is tried, and how long the pauses are.

    Attributes:
        attempts: of all tries.
        first_ms: the first pause; each is twice as long as the one before.
        max_ms: the longest one.
        jitter: by which part of itself a pause may be shorter or longer, 0 to 1.
    """

    attempts: int
    first_ms: int
    max_ms: int
    jitter: float


class Retrying:
    """Tries steps that can be repeated."""

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

    async def do(self, step: Callable[[], Awaitable[T]]) -> T:
        """Do a step that can be repeated, until it works or cannot any more; its last error is the caller's."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(self._is_retriable),
            stop=stop_after_attempt(self.backoff.attempts),
            wait=lambda state: self.pause_s(state.attempt_number),
            sleep=self._sleep,
            before_sleep=_report,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return await step()
        raise AssertionError("it raises the last error")

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row, in seconds."""
        backoff = self.backoff
        pause_ms = min(backoff.max_ms, backoff.first_ms * 2.0 ** min(failures - 1, 30))
        return pause_ms / 1000 * (1 + backoff.jitter * (2 * self._clock.random().random() - 1))


def _report(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    _log.warning("a step failed and is tried again", attempt=state.attempt_number, error=str(error))
