"""One item of a request, asked of a shard of this node: its answer, or the Kafka error code that tells its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.shard import DisklessShard
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.protocol.errors import ErrorCode

R = TypeVar("R")

ONLY_SHARD = -1
"""The index in a request that names no shard."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt(Generic[R]):
    """How it went: `answer` is None where there is an error."""

    answer: R | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class Attempts(Protocol):
    """Where the questions of a request go."""

    async def ask(self, index: int, question: Callable[[DisklessShard], Awaitable[R]], timeout_ms: int) -> Attempt[R]:
        """Ask a shard. What was asked may still happen after REQUEST_TIMED_OUT and COORDINATOR_NOT_AVAILABLE.

        Args:
            index: of the shard; -1 stands for the only one.
        """
        ...


class ShardAttempts:
    """Questions to the shards of this node."""

    def __init__(self, shards: Mapping[int, DisklessShard]) -> None:
        self._shards = shards

    async def ask(self, index: int, question: Callable[[DisklessShard], Awaitable[R]], timeout_ms: int) -> Attempt[R]:
        shard = self._shards.get(named_index(index, self._shards))
        if shard is None:
            return Attempt(None, ErrorCode.NOT_COORDINATOR, "This broker has no such Diskless coordinator.")
        return await _attempt(shard, question, timeout_ms)


def named_index(index: int, shards: Collection[int]) -> int:
    """The coordinator that a request means: the index that it names, or that of the only one."""
    return next(iter(shards)) if index == ONLY_SHARD and len(shards) == 1 else index


class RefusedAttempts:
    """Questions of somebody who may not ask: no shard ever sees them."""

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    async def ask(self, index: int, question: Callable[[DisklessShard], Awaitable[R]], timeout_ms: int) -> Attempt[R]:
        del index, question, timeout_ms
        return Attempt(None, self._error)


async def _attempt(
    shard: DisklessShard, question: Callable[[DisklessShard], Awaitable[R]], timeout_ms: int
) -> Attempt[R]:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return Attempt(await question(shard))
    except TimeoutError:
        return Attempt(None, ErrorCode.REQUEST_TIMED_OUT, f"There is no answer within {timeout_ms} ms.")
    except CoordinatorError as error:
        return Attempt(None, error.code, str(error))
    except CoordinatorStoreError as error:
        return Attempt(None, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
    except Exception as error:  # other items, of other shards, have nothing to do with it
        _log.error("a request to a coordinator failed by a defect of the broker", shard=str(shard.id), exc_info=True)
        return Attempt(None, ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
