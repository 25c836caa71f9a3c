"""What exists between start and stop: pools, the watcher, the nominations, and what is known of each shard."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import structlog

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogNotFoundError
from diskless_core.plugin.folders import make_folder, write_durably
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.shard import ShardId
from diskless_postgres.config import PostgresLogSettings
from diskless_postgres.nominations import Nominations
from diskless_postgres.server_checks import (
    Timeline,
    UnsafeServerError,
    check_no_transaction_pooler,
    check_settings,
    check_tables,
)
from diskless_postgres.sessions import ConnectError, NotExecutedError, OutcomeUnknownError, Pool, Session, connect
from diskless_postgres.tables import FORMAT, Statements
from diskless_postgres.view import ShardView
from diskless_postgres.watcher import Watcher
from diskless_postgres.writer import ShardWriter

_CREATION_LOCK = 0x6469736B6C657373
_START = Backoff(first_ms=100, max_ms=1000)
_LOG_ID = "log-id"

_PASSING_REFUSALS = frozenset({"40P01", "55P03", "57014"})
"""Of a deadlock, of a lock that another broker which starts has got, and of a statement that took too long."""

_log = structlog.get_logger(__name__)


class Backend:
    """Runs on the event loop.

    Attributes:
        log_id: of the log in the tables that were found or made, from `start` on.
    """

    log_id: uuid.UUID

    def __init__(self, context: PluginContext, settings: PostgresLogSettings, *, may_write: bool) -> None:
        self.may_write = may_write
        self._stopped = asyncio.Event()
        self.statements = Statements(settings.schema_name)
        self._context = context
        self._settings = settings
        self._timeline: Timeline | None = None
        self.reads = Pool(self.open_session, settings.connections_max)
        self._writes = Pool(self.open_session, settings.connections_max)
        self._views: dict[ShardId, ShardView] = {}
        self._writers: dict[ShardId, ShardWriter] = {}
        self.watcher = Watcher(
            self.reads,
            self.statements,
            context.clock,
            lambda: list(self._views.values()),
            self.open_session,
            self._wake_nominations,
            poll_s=settings.poll_max_ms / 1000,
        )
        self.nominations: Nominations | None = None

    async def start(self) -> None:
        """Connect, check the server, and find or make the tables.

        Raises:
            CoordinatorLogError: the server cannot be reached or is refused; the message says what to do.
        """
        clock = self._context.clock
        until = clock.monotonic() + self._settings.initialization_timeout_ms / 1000

        def can_wait(error: BaseException) -> bool:
            match error:
                case OutcomeUnknownError():
                    may_pass = True
                case ConnectError():
                    may_pass = error.retriable
                case NotExecutedError():
                    may_pass = error.sqlstate in _PASSING_REFUSALS
                case _:
                    may_pass = False
            return may_pass and clock.monotonic() < until

        self.log_id = await Retrying(_START, clock, is_retriable=can_wait).do(self._prepare)
        if self.may_write:
            self.nominations = Nominations(
                self._context.node_id,
                self.log_id,
                self.statements,
                clock,
                self.open_session,
                session_timeout_s=self._settings.session_timeout_ms / 1000,
            )
            self.nominations.start()
        self.watcher.start()

    async def stop(self) -> None:
        """End all that runs, and close all connections."""
        self._stopped.set()
        await asyncio.gather(*(writer.stop() for writer in self._writers.values()))
        if self.nominations is not None:
            await self.nominations.stop()
        await self.watcher.stop()
        await self._writes.close()
        await self.reads.close()
        for view in self._views.values():
            view.notify()

    def has_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def view(self, shard: ShardId) -> ShardView:
        """What is known of a shard."""
        if shard not in self._views:
            self._views[shard] = ShardView(shard)
        return self._views[shard]

    def writer(self, shard: ShardId) -> ShardWriter:
        """Who appends to a shard."""
        if shard not in self._writers:
            self._writers[shard] = ShardWriter(
                self.view(shard),
                self._writes,
                self.statements,
                self._context.clock,
                timeout_s=self._settings.append_timeout_ms / 1000,
                tell=self.watcher.tell,
            )
        return self._writers[shard]

    async def open_session(self) -> Session:
        """A new connection to a server that was found safe.

        Raises:
            CoordinatorLogError: there is none.
        """
        session = await connect(self._settings)
        try:
            await self._follow(await check_settings(session))
        except BaseException:
            await session.close()
            raise
        return session

    async def _follow(self, timeline: Timeline) -> None:
        """Use no server any more that a later one has taken the place of.

        Raises:
            UnsafeServerError: this is such a server.
        """
        known = self._timeline
        if known is not None and timeline.is_outdated_by(known):
            raise UnsafeServerError(
                f"this PostgreSQL is on timeline {timeline.number}, and this broker has seen {known.number}: it is an "
                "old primary that still takes writes, which will be lost. Stop it, or make it a standby"
            )
        self._timeline = timeline
        if known not in (None, timeline):
            _log.warning("PostgreSQL is on another timeline: a replica was promoted", was=known, now=timeline)
            await self.reads.renew()
            await self._writes.renew()

    async def _prepare(self) -> uuid.UUID:
        one = await self.open_session()
        try:
            if self.may_write:
                other = await self.open_session()
                try:
                    await check_no_transaction_pooler(one, other, self._context.clock.new_uuid())
                finally:
                    await other.close()
            rows = await self._log_row(one)
            if not rows and self.may_write:
                await asyncio.to_thread(self._require_none_known)
                await self._create(one)
                rows = await self._log_row(one)
            if not rows:
                raise LogNotFoundError(f"there is no log in the schema {self.statements.schema!r} of this database")
            await check_tables(one, self.statements)
        finally:
            await one.close()
        ((form, log_id),) = rows
        if form != FORMAT:
            raise CoordinatorLogError(f"the tables of the log are of format {form}, and this plugin knows {FORMAT}")
        await asyncio.to_thread(self._require_own, str(log_id))
        return uuid.UUID(str(log_id))

    async def _log_row(self, session: Session) -> list[tuple[Any, ...]]:
        table = f'"{self.statements.schema}".log'
        ((found,),), _ = await session.do("SELECT to_regclass(%s)::text", [table])
        if found is None:
            return []
        rows, _ = await session.do(self.statements.log)
        return rows

    async def _create(self, session: Session) -> None:
        await session.do("SELECT pg_advisory_lock(%s)", [_CREATION_LOCK])  # until the session is closed
        ((schema,),), _ = await session.do("SELECT to_regnamespace(%s)::text", [f'"{self.statements.schema}"'])
        if schema is None:
            await session.do(self.statements.create_schema)
        for statement in self.statements.create:
            await session.do(statement)
        await session.do(self.statements.create_log, [FORMAT, self._context.clock.new_uuid()])

    @property
    def _id_path(self) -> Path:
        return self._context.data_dir / _LOG_ID

    def _known_id(self) -> str | None:
        return self._id_path.read_text(encoding="ascii").strip() if self._id_path.exists() else None

    def _require_none_known(self) -> None:
        known = self._known_id()
        if known is not None:
            raise UnsafeServerError(
                f"this broker's log has the id {known}, and there is none in the schema {self.statements.schema!r}: "
                "restore it, or set host, dbname and schema.name to the right ones"
            )

    def _require_own(self, log_id: str) -> None:
        known = self._known_id()
        if known is None and self.may_write:
            make_folder(self._context.data_dir)
            write_durably(self._id_path, log_id.encode("ascii"))
        elif known not in (None, log_id):
            raise UnsafeServerError(
                f"this broker's log has the id {known}, and the one in the schema {self.statements.schema!r} has "
                f"{log_id}: it is another cluster's, or was made anew. Set dbname and schema.name to the right ones"
            )

    def _wake_nominations(self) -> None:
        if self.nominations is not None:
            self.nominations.wake()
