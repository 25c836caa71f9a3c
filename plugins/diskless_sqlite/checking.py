"""Whether a database is whole: checked before it is used, or beside its use where it was closed in order.

SQLite's check reads every page, which takes 0.1 s or more for each million rows. A large database that was closed in
order and has not changed since is checked on a separate thread.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.folders import sync_folder

logger = logging.getLogger(__name__)

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

_INTERRUPT_S = 0.01

SOUND = "ok"
"""What SQLite says of a database that is whole."""

CHECK_TRIES = 3
"""How often a check beside use is tried at most, where it fails for another reason than damage."""

CHECK_PAUSE_S = 30.0
"""Between two of these tries."""

WAITING_AT_ONCE = 2
"""Snapshots in a process that may wait for checks at once. The event loop's pool has only 6 threads on two CPUs."""

_WAITING = threading.BoundedSemaphore(WAITING_AT_ONCE)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that one thread at a time may use."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def checked(connection: sqlite3.Connection) -> str:
    """`SOUND`, or the first thing that is wrong with a database. Reads all of it.

    Raises:
        sqlite3.Error: it cannot be read, perhaps since it is damaged.
    """
    return " ".join(connection.execute("PRAGMA quick_check(1)").fetchone()[0].split())


class ClosedMark:
    """A file beside a database that says which size and time of change it had when it was closed in order.

    A database that is in use has none, so a process that is killed leaves none.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}-closed")

    def take(self) -> bool:
        """Remove the mark. Returns whether there was one and the database has not changed since.

        Raises:
            OSError: it cannot be removed.
        """
        try:
            mark = self._path.read_bytes()
        except FileNotFoundError:
            return False
        is_as_closed = not _log_of(self._database).exists() and mark == self._state() != b""
        self._path.unlink()
        sync_folder(self._path.parent)  # a mark that came back after a power loss could fit a database that has changed
        return is_as_closed

    def put(self) -> None:
        """Mark the database as closed in order, unless another connection still has it open."""
        state = self._state()
        if state and not _log_of(self._database).exists():
            with suppress(OSError):  # without one, the database is checked before it is used
                self._path.write_bytes(state)

    def _state(self) -> bytes:
        """Size and time of change of the database as a mark has them; empty where there is no database."""
        with suppress(FileNotFoundError):
            stat = self._database.stat()
            return json.dumps({"size_bytes": stat.st_size, "changed_at_ns": stat.st_mtime_ns}).encode()
        return b""


class Soundness:
    """What is known of a database that is in use: checked before, and sound unless SQLite says otherwise later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_suspect = False

    def note(self, error: Exception) -> None:
        """Note what a statement raised. A database that SQLite calls damaged is checked when it is opened again."""
        self._is_suspect = self._is_suspect or is_corruption(error)

    def require_no_damage(self) -> None:
        """Raise if the check has found damage by now, or has failed.

        Raises:
            CoordinatorStoreError: the database must no longer be used.
        """

    def wait_until_checked(self) -> None:
        """Return when it is known that the database is sound.

        Raises:
            CoordinatorStoreError: it is not, or it is closed before that is known; or so many wait already that the
                caller has to try again.
        """

    def give_up_check(self) -> None:
        """End the check, whether or not it has come to its end. To be called before the database is closed."""

    def closed(self) -> None:
        """The database has been closed. Unless it is suspect, it need not be checked before it is used again."""
        if not self._is_suspect:
            ClosedMark(self._path).put()


class CheckBesideUse(Soundness):
    """Checks a database that is in use, on a separate thread and connection. What it finds is final."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._connection = connect(path)
        self._has_ended = threading.Event()
        self._is_given_up = threading.Event()
        self._is_sound = False
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"check-{path.stem}", daemon=True)
        self._thread.start()

    def require_no_damage(self) -> None:
        if self._problem is not None:
            raise CoordinatorStoreError(self._problem)

    def wait_until_checked(self) -> None:
        if not self._has_ended.is_set():
            self._wait()
        self.require_no_damage()
        if not self._is_sound:
            raise CoordinatorStoreError(f"{self._path} was closed before it was checked for damage")

    def _wait(self) -> None:
        # A waiting snapshot holds a thread of a pool that all of the broker uses: all shards together may hold few.
        if not _WAITING.acquire(blocking=False):
            raise CoordinatorStoreError(f"{self._path} is still being checked for damage: try again")
        try:
            self._has_ended.wait()
        finally:
            _WAITING.release()

    def give_up_check(self) -> None:
        self._is_given_up.set()
        while self._thread.is_alive():
            with suppress(sqlite3.ProgrammingError):  # it has ended, and closed its connection
                self._connection.interrupt()
            self._thread.join(_INTERRUPT_S)  # one that is just about to begin does not notice an interruption

    def _run(self) -> None:
        try:
            with closing(self._connection):
                found = self._found()
            if found == SOUND:
                self._is_sound = True
            elif found is not None:
                self._fail(
                    f"{self._path} is damaged ({found}) and is no longer used: restart the broker, which fills the "
                    "store again from the log"
                )
        except Exception as error:
            self._fail(
                f"{self._path} could not be checked for damage ({error!r}) and is no longer used: restart the broker, "
                "which checks the store before it uses it"
            )
        finally:
            self._has_ended.set()  # after what was found, so that a snapshot that waits never reads unchecked rows

    def _fail(self, problem: str) -> None:
        self._problem, self._is_suspect = problem, True
        logger.error("%s", problem)

    def _found(self) -> str | None:
        """`SOUND`, or the first thing that is wrong; None where the check was given up.

        Raises:
            sqlite3.Error, MemoryError: each try failed, and no error says that the database is damaged.
        """
        tries = 0
        while not self._is_given_up.is_set():
            try:
                found = checked(self._connection)
                return None if self._is_given_up.is_set() and found != SOUND else found  # cut off, it proves nothing
            except (sqlite3.Error, MemoryError) as error:  # the latter is what SQLITE_NOMEM becomes
                if is_corruption(error):
                    return str(error)
                tries += 1
                if self._is_given_up.is_set():
                    break
                if tries == CHECK_TRIES:
                    raise
                logger.warning("%s could not be checked for damage (%r), which is tried again", self._path, error)
                self._is_given_up.wait(CHECK_PAUSE_S)
        return None


def is_corruption(error: Exception) -> bool:
    """Whether SQLite says that a file is damaged, or no database."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPT


def _log_of(database: Path) -> Path:
    """SQLite's own write-ahead log, which is there while a database is open or after its process was killed."""
    return database.with_name(f"{database.name}-wal")
