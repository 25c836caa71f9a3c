"""Connections to the server: opened with safe settings, every statement bounded in time, a silent one cut off.

A statement that is cancelled on the server may have been committed all the same. So one that takes too long is never
cancelled: its connection is shut, and its outcome is unknown.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors

from diskless_core.plugin.config import redact
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_postgres.config import PostgresLogSettings

CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 10.0
"""How long one statement may take before its connection is shut. The server gives it up a little earlier."""

_SETTINGS = (
    "SET search_path = pg_catalog",
    "SET synchronous_commit = on",
    "SET default_transaction_isolation = 'read committed'",
    "SET default_transaction_read_only = off",
    "SET statement_timeout = 8000",
    "SET lock_timeout = 4000",
    "SET idle_in_transaction_session_timeout = 0",
    "SET idle_session_timeout = 0",
    "SET tcp_keepalives_idle = 2",
    "SET tcp_keepalives_interval = 1",
    "SET tcp_keepalives_count = 4",
)
"""`idle_session_timeout` came with PostgreSQL 14. What is weaker than `synchronous_commit=on` would lose commits."""
_STRONGER = "remote_apply"


class OutcomeUnknownError(CoordinatorLogError):
    """The connection was lost, or the server warned, while a statement was under way: it may have been committed."""


class NotExecutedError(CoordinatorLogError):
    """The server refused a statement: it certainly changed nothing.

    Attributes:
        sqlstate: the server's code.
    """

    def __init__(self, message: str, sqlstate: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class ConnectError(CoordinatorLogError):
    """No connection could be opened.

    Attributes:
        retriable: whether waiting can help.
    """

    def __init__(self, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable


class Session:
    """One connection. One statement at a time."""

    def __init__(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        self.connection = connection
        self._warned: str = ""
        self._is_severed = False
        connection.add_notice_handler(self._note)

    @property
    def is_usable(self) -> bool:
        connection = self.connection
        # what was shut looks usable until it is used: its last statement may have ended just before
        if self._is_severed:
            return False
        return not connection.closed and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE

    async def do(self, statement: Any, parameters: Any = None) -> tuple[list[tuple[Any, ...]], int]:
        """Execute one statement in a transaction of its own. Its rows, and how many rows it concerned.

        Raises:
            OutcomeUnknownError: nobody knows whether it took place.
            NotExecutedError: it did not.
        """
        self._warned = ""
        work = asyncio.ensure_future(self._execute(statement, parameters))
        try:
            async with asyncio.timeout(STATEMENT_TIMEOUT_S):
                await asyncio.wait([work])
        except (TimeoutError, asyncio.CancelledError) as stopped:
            self.sever()
            await asyncio.wait([work])
            with suppress(psycopg.Error):
                work.result()
            if isinstance(stopped, asyncio.CancelledError):
                raise
            raise OutcomeUnknownError(f"PostgreSQL did not answer within {STATEMENT_TIMEOUT_S:g} s") from None
        try:
            result = work.result()
        except psycopg.Error as error:
            if not self.is_usable or error.sqlstate is None:
                self.sever()
                raise OutcomeUnknownError(f"the connection to PostgreSQL was lost: {_said(error)}") from error
            raise NotExecutedError(f"PostgreSQL refused: {_said(error)}", error.sqlstate) from error
        if self._warned:  # such as: the wait for a synchronous standby was cancelled
            self.sever()
            raise OutcomeUnknownError(f"PostgreSQL warned: {self._warned}")
        return result

    async def _execute(self, statement: Any, parameters: Any) -> tuple[list[tuple[Any, ...]], int]:
        cursor = await self.connection.execute(statement, parameters, binary=parameters is not None)
        return (await cursor.fetchall() if cursor.description else []), cursor.rowcount

    async def notices(self, timeout_s: float) -> AsyncIterator[str]:
        """Payloads of notifications that come in this time.

        Raises:
            OutcomeUnknownError: the connection was lost.
        """
        try:
            async for notice in self.connection.notifies(timeout=timeout_s):
                yield notice.payload
        except psycopg.Error as error:
            raise OutcomeUnknownError(f"the connection to PostgreSQL was lost: {_said(error)}") from error

    def sever(self) -> None:
        """Shut the connection: whatever waits for it ends at once."""
        self._is_severed = True
        with suppress(OSError, psycopg.Error):
            held = socket.socket(fileno=os.dup(self.connection.fileno()))
            with held:
                held.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Give the connection back. Idempotent."""
        await self.connection.close()

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if (notice.severity_nonlocalized or notice.severity) == "WARNING":
            self._warned = notice.message_primary or "no text"


async def connect(settings: PostgresLogSettings) -> Session:
    """Open a connection and set what makes it safe.

    Raises:
        ConnectError: it cannot be opened.
    """
    password = ""
    try:
        parameters = await asyncio.to_thread(settings.connection_parameters)
        password = parameters.get("password", "")
        connection = await _connected(parameters)
    except (OSError, UnicodeError) as error:
        raise ConnectError(f"coordinator_log.postgres cannot connect: {error}", retriable=False) from None
    except psycopg.Error as error:
        said = redact(_said(error), [password])
        raise ConnectError(f"cannot connect to PostgreSQL: {said}", retriable=_may_pass(said)) from None
    session = Session(connection)
    try:
        await _secure(session)
    except BaseException as error:
        await session.close()
        if isinstance(error, CoordinatorLogError) and not isinstance(error, ConnectError):
            raise ConnectError(str(error), retriable=isinstance(error, OutcomeUnknownError)) from error
        raise
    return session


async def _connected(parameters: dict[str, str]) -> psycopg.AsyncConnection[tuple[Any, ...]]:
    """A connection. One that is opened while nobody wants it any more is closed: it takes `connect_timeout` at most."""
    opening = asyncio.ensure_future(
        psycopg.AsyncConnection.connect(
            autocommit=True,
            application_name="diskless",
            connect_timeout=int(CONNECT_TIMEOUT_S),
            tcp_user_timeout=int(STATEMENT_TIMEOUT_S * 1000),
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            client_encoding="utf8",
            **parameters,  # type: ignore[arg-type]
        )
    )
    try:
        await asyncio.wait([opening])
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        with suppress(psycopg.Error):
            await opening.result().close()
        raise
    return opening.result()


async def _secure(session: Session) -> None:
    version = session.connection.info.server_version
    if version < 140000:
        raise ConnectError(
            f"this PostgreSQL is of version {version // 10000}: coordinator_log=postgres needs 14 or newer",
            retriable=False,
        )
    ((commit,),), _ = await session.do("SHOW synchronous_commit")
    await session.do("; ".join(_SETTINGS))
    if commit == _STRONGER:
        await session.do(f"SET synchronous_commit = {_STRONGER}")


_LASTING = (
    "FATAL",
    "no password supplied",
    "does not support SSL",
    "certificate",
    "private key",
)
"""What PostgreSQL or libpq says where settings are wrong, on this side or the other."""
_PASSING = ("the database system is", "too many")


def _may_pass(said: str) -> bool:
    return any(words in said for words in _PASSING) or not any(words in said for words in _LASTING)


def _said(error: psycopg.Error) -> str:
    """The message alone. Details may have the contents of rows."""
    if isinstance(error, errors.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return " ".join(str(error).split())


class Pool:
    """So many connections at most, opened when they are needed."""

    def __init__(self, opener: Any, size: int) -> None:
        self._open = opener
        self._free: list[Session] = []
        self._used: set[Session] = set()
        self._places = asyncio.Semaphore(size)
        self._closed = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A connection for one or a few statements. It comes back, or is closed if it cannot be used any more."""
        async with self._places:
            self._require_open()
            session = await self._take()
            self._used.add(session)
            try:
                yield session
            finally:
                self._used.discard(session)
                if session.is_usable and not self._closed:
                    self._free.append(session)
                else:
                    await session.close()

    async def rows(self, statement: Any, parameters: Any = None) -> Sequence[tuple[Any, ...]]:
        """The rows of one statement that changes nothing. A connection that was lost while idle is replaced."""
        try:
            async with self.session() as session:
                found, _ = await session.do(statement, parameters)
        except OutcomeUnknownError:
            await self._forget_free()
            async with self.session() as session:
                found, _ = await session.do(statement, parameters)
        return found

    async def close(self) -> None:
        """Close all. What is under way ends with an unknown outcome."""
        self._closed = True
        await self.renew()

    async def renew(self) -> None:
        """Use none of the connections that are open any more. What is under way ends with an unknown outcome."""
        for session in list(self._used):
            session.sever()
        await self._forget_free()

    async def _forget_free(self) -> None:
        while self._free:
            await self._free.pop().close()

    async def _take(self) -> Session:
        while self._free:
            session = self._free.pop()
            if session.is_usable:
                return session
            await session.close()
        opened: Session = await self._open()
        try:
            self._require_open()
        except CoordinatorLogError:
            await opened.close()
            raise
        return opened

    def _require_open(self) -> None:
        if self._closed:
            raise CoordinatorLogError("the coordinator log is stopped")
