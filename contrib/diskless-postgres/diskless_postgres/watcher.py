"""Finds out what others have appended: a notification wakes it, and where none comes it asks all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.retrying import Backoff
from diskless_postgres.entries import LostTailError
from diskless_postgres.sessions import Pool, Session
from diskless_postgres.tables import NOTIFY, Statements
from diskless_postgres.view import ShardView

NOMINATION = "nomination"
"""Payload of a notification that is not about entries."""

_AGAIN = Backoff(first_ms=100, max_ms=2000)
_LISTEN_S = 5.0

_log = structlog.get_logger(__name__)


class Watcher:
    """Asks for the heads of shards that somebody waits for, tells others of appends, and listens to them.

    Args:
        wake_nominations: called when a notification is about who leads.
    """

    def __init__(
        self,
        pool: Pool,
        statements: Statements,
        clock: Clock,
        views: Callable[[], Iterable[ShardView]],
        open_session: Callable[[], Awaitable[Session]],
        wake_nominations: Callable[[], None],
        *,
        poll_s: float,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._views = views
        self._open_session = open_session
        self._wake_nominations = wake_nominations
        self._poll_s = poll_s
        self._wanted = asyncio.Event()
        self._untold = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        for step in (self._look_for_ever, self._listen_for_ever, self._tell_for_ever):
            self._tasks.append(asyncio.create_task(self._repeat(step), name=f"coordinator log {step.__name__}"))

    async def stop(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def tell(self) -> None:
        """Something was appended: other nodes hear of it soon. Never blocks; many appends are one notification."""
        self._untold.set()

    def look_soon(self) -> None:
        """Somebody has begun to wait."""
        self._wanted.set()

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            began_at = self._clock.monotonic()
            try:
                await step()
            except CoordinatorLogError as error:
                if self._clock.monotonic() - began_at > _LISTEN_S:
                    failures = 0
                failures += 1
                _log.warning("PostgreSQL cannot be asked for new entries, and is asked again", error=str(error))
            await asyncio.sleep(_AGAIN.pause_s(max(failures, 1), self._clock))

    async def _look_for_ever(self) -> None:
        while True:
            self._wanted.clear()
            views = [view for view in self._views() if view.waiting]
            if views:
                await self.look(views)
            try:
                async with asyncio.timeout(self._poll_s):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def look(self, views: Iterable[ShardView]) -> None:
        """Ask for the heads of these.

        Raises:
            CoordinatorLogError: they cannot be had, or the tables of a shard are damaged: the others are told of first.
        """
        asked = {str(view.shard): (view, view.head) for view in views}
        questions = [view.question() for view, _ in asked.values()]
        rows = await self._pool.rows(
            self._statements.heads, [[name for name, _ in questions], [at for _, at in questions]]
        )
        damage: CoordinatorLogError | None = None
        for row in rows:
            view, known = asked[row[0]]
            try:
                view.take_answer(known, row)
            except LostTailError as error:
                _log.error("the log of a shard went back", shard=row[0], error=str(error))
            except CoordinatorLogError as error:
                damage = error
        if damage is not None:
            raise damage

    async def _listen_for_ever(self) -> None:
        session = await self._open_session()
        try:
            await session.do(self._statements.listen)
            self._wanted.set()  # what came before it is not told
            self._wake_nominations()
            while True:
                async for notice in session.notices(_LISTEN_S):
                    if notice == NOMINATION:
                        self._wake_nominations()
                    else:
                        self._wanted.set()
                await session.do("SELECT 1")
        finally:
            await session.close()

    async def _tell_for_ever(self) -> None:
        while True:
            await self._untold.wait()
            self._untold.clear()
            await self._pool.rows(NOTIFY, [self._statements.channel, ""])
