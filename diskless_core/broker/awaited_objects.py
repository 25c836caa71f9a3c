"""What a start asks of a WAL object store that may not be there yet: again and again, for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError

RETRY = Backoff(first_ms=500, max_ms=2_000)

SILENCE_S = 3.0
"""After so long without an answer the log says what the start waits for."""

LOOK_S = 0.2
"""Between looks whether shards are being restored."""

ONE_TRY_S = 60.0
"""How long a step may take where the start is not to wait."""

PROPERTY = "diskless.startup.timeout.ms"

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class AwaitedObjects:
    """Does steps of a start that ask the store, each again while it fails and can succeed.

    Args:
        timeout_ms: how long a step is tried in all. 0: it is tried once, for `ONE_TRY_S` at most.
    """

    def __init__(self, timeout_ms: int, clock: Clock) -> None:
        self._timeout_s = timeout_ms / 1000
        self._clock = clock
        self._retrying = Retrying(RETRY, clock)
        self._begun_at = 0.0
        self._obstacle = ""

    async def do(self, step: Callable[[], Awaitable[T]]) -> T:
        """What a step returns, at last.

        Raises:
            WalObjectStoreError: it fails for good, or the time is over.
        """
        if not self._timeout_s:
            return await _tried_once(step)
        self._begun_at, self._obstacle = self._clock.monotonic(), ""
        silence = asyncio.get_running_loop().call_later(SILENCE_S, self._say_that_nobody_answers)
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._retrying.do(step, self._report)
        except TimeoutError:
            raise WalObjectStoreError(
                f"the WAL object store could not be used within {self._timeout_s:g} s ({PROPERTY}): "
                f"{self._obstacle or 'it does not answer'}"
            ) from None
        finally:
            silence.cancel()
        if self._obstacle:
            _log.info("the WAL object store answers: the start goes on")
        return found

    def _report(self, error: BaseException, _: int) -> None:
        self._say(str(error))

    def _say_that_nobody_answers(self) -> None:
        if not self._obstacle:
            self._say("it does not answer")

    def _say(self, obstacle: str) -> None:
        self._obstacle = obstacle
        left_s = self._begun_at + self._timeout_s - self._clock.monotonic()
        _log.warning(
            "the start waits for the WAL object store", error=obstacle, gives_up_in_s=round(left_s, 1), limit=PROPERTY
        )


async def _tried_once(step: Callable[[], Awaitable[T]]) -> T:
    try:
        async with asyncio.timeout(ONE_TRY_S):
            return await step()
    except TimeoutError:
        raise WalObjectStoreError(f"the WAL object store has not answered for {ONE_TRY_S:g} s") from None


class Candidate(Protocol):
    """The cluster shard, as far as this node may come to lead it."""

    def stand_aside(self) -> None: ...

    def stand_again(self) -> None: ...


class Restorable(Protocol):
    """A shard that may have to get its state from a snapshot in the store."""

    @property
    def cannot_lead(self) -> bool: ...


@contextmanager
def standing_aside(shard: Candidate) -> Iterator[None]:
    """Be no candidate for the controller once what the block asks of the store has taken `SILENCE_S`, until it answers.

    A broker that starts answers nobody yet. As the controller it would leave the heartbeats of all others unanswered
    for as long as its store hangs. An error is no answer: the store is likely to be asked again.
    """
    timer = asyncio.get_running_loop().call_later(SILENCE_S, shard.stand_aside)
    try:
        yield
    except ObjectNotFoundError:
        shard.stand_again()
        raise
    else:
        shard.stand_again()
    finally:
        timer.cancel()


@asynccontextmanager
async def standing_aside_while_restoring(
    cluster: Candidate, shards: Sequence[Restorable], clock: Clock
) -> AsyncIterator[None]:
    """The same while a shard of this node has been restored from a snapshot for so long: a start waits for that."""
    watching = asyncio.create_task(_watch_restoring(cluster, shards, clock), name="shards that are restored")
    try:
        yield
    finally:
        watching.cancel()
        cluster.stand_again()


async def _watch_restoring(cluster: Candidate, shards: Sequence[Restorable], clock: Clock) -> None:
    since_s: float | None = None
    while True:
        if not any(shard.cannot_lead for shard in shards):
            since_s = None
            cluster.stand_again()
        elif since_s is None:
            since_s = clock.monotonic()
        elif clock.monotonic() - since_s >= SILENCE_S:
            cluster.stand_aside()
        await asyncio.sleep(LOOK_S)
