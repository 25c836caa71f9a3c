"""What a server has to be like before a log is entrusted to it, and which timeline it is on."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_postgres.sessions import Session
from diskless_postgres.tables import Statements

_SETTINGS = (
    "SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'), "
    "current_setting('synchronous_commit'), current_setting('zero_damaged_pages', true), "
    "current_setting('transaction_read_only')"
)
_TIMELINE = (
    "SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int "
    "FROM pg_control_system()"
)
_PROBE = "diskless.probe"


class UnsafeServerError(CoordinatorLogError):
    """The server would lose, or hide, what it has acknowledged. The message says which setting to change."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Where a server is in the history of its data.

    Attributes:
        system: what all copies of the same data have in common. An upgrade of PostgreSQL makes a new one.
        number: grows with each promotion of a copy.
    """

    system: int
    number: int

    def is_outdated_by(self, other: Timeline) -> bool:
        """Whether a copy has been promoted since: this server is an old primary, and what it takes will be lost."""
        return self.system == other.system and self.number < other.number


async def check_settings(session: Session) -> Timeline:
    """Refuse a server that is not safe. Returns the timeline that it is on.

    Raises:
        UnsafeServerError: it is not safe.
    """
    ((standby, fsync, full_pages, commit, zeroes, read_only),), _ = await session.do(_SETTINGS)
    if standby:
        raise UnsafeServerError(
            "this PostgreSQL is a standby: set coordinator_log.postgres.host to the primary, or list all servers there"
        )
    if read_only == "on":
        raise UnsafeServerError("this PostgreSQL takes no writes (transaction_read_only=on)")
    if fsync != "on":
        raise UnsafeServerError("this PostgreSQL runs with fsync=off and loses commits in a crash: set fsync=on")
    if full_pages != "on":
        raise UnsafeServerError(
            "this PostgreSQL runs with full_page_writes=off, and a crash can tear its pages: set full_page_writes=on"
        )
    if zeroes == "on":
        raise UnsafeServerError("this PostgreSQL runs with zero_damaged_pages=on, which turns damage into absence")
    if commit not in ("on", "remote_apply"):
        raise UnsafeServerError(
            f"synchronous_commit is {commit} although the session has set it to on: connect to PostgreSQL directly"
        )
    ((system, number),), _ = await session.do(_TIMELINE)
    return Timeline(system, number)


async def check_no_transaction_pooler(one: Session, other: Session, nonce: uuid.UUID) -> None:
    """Refuse a pooler that hands out server connections by transaction: advisory locks and LISTEN are lost there.

    While the first connection is idle, the second one holds a transaction open. A pooler gives that the server
    connection which the first one has used, and so one of both finds that its own is another one than before.

    Raises:
        UnsafeServerError: there is one.
    """
    ((before,),), _ = await one.do("SELECT pg_backend_pid()")
    await one.do(f"SELECT set_config('{_PROBE}', %s, false)", [str(nonce)])
    await other.do("BEGIN")
    ((found,),), _ = await other.do(f"SELECT current_setting('{_PROBE}', true)")
    is_shared = found == str(nonce)
    if not is_shared:  # a pooler that has one server connection would not answer
        ((after, kept),), _ = await one.do(f"SELECT pg_backend_pid(), current_setting('{_PROBE}', true)")
        is_shared = after != before or kept != str(nonce)
    await other.do("ROLLBACK")
    if is_shared:
        raise UnsafeServerError(
            "there is a pooler in transaction mode between the broker and PostgreSQL, which breaks advisory locks and "
            "LISTEN: connect directly, or set pool_mode=session"
        )


async def check_tables(session: Session, statements: Statements) -> None:
    """Refuse tables that a crash would empty.

    Raises:
        UnsafeServerError: one is UNLOGGED.
    """
    rows, _ = await session.do(
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND relkind = 'r' AND relpersistence <> 'p'",
        [statements.schema],
    )
    if rows:
        names = ", ".join(str(name) for (name,) in rows)
        raise UnsafeServerError(f"tables of the log are UNLOGGED, and a crash empties them: {names}")
