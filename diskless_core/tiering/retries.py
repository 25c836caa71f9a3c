"""Does a step of copying or removing a segment again when it failed: some times, at growing intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from diskless_core.clock import Clock
from diskless_core.config.tiering import TieringConfig
from diskless_core.coordinator.errors import CoordinatorError, NotCoordinatorError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.plugin.wal_object_store import WalObjectStoreError

T = TypeVar("T")

ATTEMPTS = 6
"""How often a step is tried in all. After that, it is the next round's."""

_log = structlog.get_logger(__name__)


class Retries:
    """`remote.log.manager.task.retry.backoff.*`: doubling, capped, with jitter to either side."""

    def __init__(
        self,
        settings: TieringConfig,
        clock: Clock,
        *,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._attempts = attempts
        self._sleep = sleep

    async def do(self, step: Callable[[], Awaitable[T]]) -> T:
        """Do a step that can be repeated, until it works or cannot any more; its last error is the caller's."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(is_retriable),
            stop=stop_after_attempt(self._attempts),
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
        settings = self._settings
        pause_ms = min(
            settings.remote_log_manager_task_retry_backoff_max_ms,
            settings.remote_log_manager_task_retry_backoff_ms * 2.0 ** min(failures - 1, 30),
        )
        jitter = settings.remote_log_manager_task_retry_jitter
        return pause_ms / 1000 * (1 + jitter * (2 * self._clock.random().random() - 1))


def is_retriable(error: BaseException) -> bool:
    """Whether the same step can succeed on this node."""
    if isinstance(error, RemoteStorageError | RemoteLogMetadataError | WalObjectStoreError):
        return error.retriable
    return isinstance(error, CoordinatorError) and not isinstance(error, NotCoordinatorError)


def _report(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    _log.warning("a step of tiering failed and is tried again", attempt=state.attempt_number, error=str(error))
