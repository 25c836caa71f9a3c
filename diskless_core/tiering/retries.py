"""Does a step of copying or removing a segment again when it failed, as the broker's settings say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from diskless_core.clock import Clock
from diskless_core.config.tiering import TieringConfig
from diskless_core.coordinator.errors import CoordinatorError, NotCoordinatorError
from diskless_core.plugin import retrying
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.retrying import Backoff, Retrying

ATTEMPTS = 6
"""How often a step is tried in all. After that, it is the next round's."""


class Retries(Retrying):
    """`remote.log.manager.task.retry.backoff.*`: doubling, capped, with jitter to either side."""

    def __init__(
        self,
        settings: TieringConfig,
        clock: Clock,
        *,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        backoff = Backoff(
            attempts=attempts,
            first_ms=settings.remote_log_manager_task_retry_backoff_ms,
            max_ms=settings.remote_log_manager_task_retry_backoff_max_ms,
            jitter=settings.remote_log_manager_task_retry_jitter,
        )
        super().__init__(backoff, clock, is_retriable=is_retriable, sleep=sleep)


def is_retriable(error: BaseException) -> bool:
    """Whether the same step can succeed on this node."""
    if isinstance(error, RemoteLogMetadataError):
        return error.retriable
    if isinstance(error, CoordinatorError):
        return not isinstance(error, NotCoordinatorError)
    return retrying.is_retriable(error)
