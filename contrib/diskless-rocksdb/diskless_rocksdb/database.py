"""One open database: bytes by bytes, in order. Nothing of rocksdict that could end the process gets past this module.

Some things about rocksdict shape it. Most calls hold the interpreter's lock, so none may wait for the disk for long.
Iterators of its own snapshots show the newest rows; a plain iterator shows those of the time when it was made. An
iterator keeps the database open, points to its bound without keeping it, and tells of damage only when it is asked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from rocksdict import Rdict, RdictIter, ReadOptions, WriteBatch

from diskless_rocksdb.engine import Engine, write_options
from diskless_rocksdb.errors import ClosedError, StalledError, translated

logger = logging.getLogger(__name__)

_POLL_S = 0.01
_BUFFER_BYTES = "rocksdb.cur-size-active-mem-table"
_WAITING_BUFFERS = "rocksdb.num-immutable-mem-table"
_BRAKES = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate")


class Database:
    """Used by one thread, but for `flush_soon`, which any may call, and for snapshots, each of which has one thread."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder = folder
        self._engine = engine
        self._write_options = write_options()
        self._snapshots: set[Snapshot] = set()
        # held by other threads than the owner's while they call, and by the owner while it closes
        self._closing = threading.Lock()
        self._open: Rdict | None = engine.open(folder)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        database = self._opened()
        try:
            found: bytes | None = database.get(key)
        except Exception as error:  # see errors.py; the same below
            raise translated(error, self.folder, "read") from error
        return found

    def values(self, first: bytes, after: bytes, limit: int | None, *, reverse: bool) -> list[bytes]:
        """Values of the keys from `first` to before `after`, which is greater, from either end."""
        database = self._opened()
        rows: RdictIter | None = None
        try:
            options = ReadOptions()
            options.set_iterate_upper_bound(after)
            rows = database.iter(options)
            found: list[bytes] = []
            if reverse:
                rows.seek_to_last()
                # there is no lower bound: rocksdict's setter of it sets the upper one
                while len(found) != limit and (key := rows.key()) is not None and key >= first:
                    found.append(rows.value())
                    rows.prev()
            else:
                rows.seek(first)
                while len(found) != limit and (value := rows.value()) is not None:
                    found.append(value)
                    rows.next()
            rows.status()
        except Exception as error:
            raise translated(error, self.folder, "read") from error
        finally:
            rows = None  # an error has this frame, and who keeps it would keep the database open
        return found

    def write(self, build: Callable[[], WriteBatch]) -> None:
        """Write a batch, whole or not at all. `build` is called again where it has to be tried again.

        Raises:
            StalledError: RocksDB took no writes for the time that the settings allow.
            CoordinatorStoreError: it cannot be written.
        """
        database, waited_s = self._opened(), 0.0
        while True:
            batch = build()
            try:
                database.write(batch, self._write_options)
                used = database.property_int_value(_BUFFER_BYTES)
                break
            except Exception as error:
                failure = translated(error, self.folder, "write to")
                if not isinstance(failure, StalledError) or waited_s >= self._engine.write_timeout_s:
                    raise failure from error
            waited_s += self._wait_for_brakes(database, self._engine.write_timeout_s - waited_s)
        self._engine.buffers.note(self, used or 0)

    def snapshot(self) -> Snapshot:
        """A view of what is there now. It is closed with the database."""
        try:
            snapshot = Snapshot(self, self._opened().iter())
        except ClosedError:
            raise
        except Exception as error:
            raise translated(error, self.folder, "read") from error
        self._snapshots.add(snapshot)
        return snapshot

    def flush_soon(self) -> None:
        """Begin to write what is in memory to a table. From any thread."""
        with self._closing:
            if self._open is None:
                return
            try:
                # another flush of this one waits already, and this call would, too
                if not self._open.property_int_value(_WAITING_BUFFERS):
                    self._open.flush(wait=False)
            except Exception as error:  # whoever writes to this database meets it as well, and says so
                logger.debug("cannot flush %s: %s", self.folder, error)

    def close(self) -> None:
        """Release all files, and end all snapshots. What is in memory is written to a table before. Idempotent."""
        for snapshot in list(self._snapshots):
            snapshot.close()
        with self._closing:
            database, self._open = self._open, None
            if database is None:
                return
            self._engine.buffers.forget(self)
            try:
                database.close()
            except Exception as error:  # it is closed nevertheless, and its log has what could not be flushed
                logger.warning("%s is closed, but: %s", self.folder, error)

    def ended(self, snapshot: Snapshot) -> None:
        """A snapshot was closed."""
        self._snapshots.discard(snapshot)

    def _opened(self) -> Rdict:
        if self._open is None:
            raise ClosedError(self.folder)
        return self._open

    @staticmethod
    def _wait_for_brakes(database: Rdict, longest_s: float) -> float:
        """Wait until RocksDB takes writes without a brake, and return how long that was, at least a moment."""
        pause, waited_s = threading.Event(), 0.0
        while True:
            pause.wait(_POLL_S)
            waited_s += _POLL_S
            if waited_s >= longest_s or not any(database.property_int_value(name) for name in _BRAKES):
                return waited_s


class Snapshot:
    """The database as it was. Any thread may read, one at a time, and any may close it meanwhile."""

    def __init__(self, database: Database, rows: RdictIter) -> None:
        self._database = database
        self._rows: RdictIter | None = rows
        self._lock = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            rows = self._opened()
            try:
                rows.seek(key)
                found: bytes | None = rows.value() if rows.key() == key else None
                rows.status()
            except Exception as error:
                raise translated(error, self._database.folder, "read") from error
            finally:
                del rows  # as in `Database.values`
        return found

    def values(self, first: bytes, after: bytes, limit: int | None, *, reverse: bool) -> list[bytes]:
        """As those of the database."""
        found: list[bytes] = []
        with self._lock:
            rows = self._opened()
            try:
                if reverse:
                    rows.seek_for_prev(after)
                    if rows.key() == after:
                        rows.prev()
                else:
                    rows.seek(first)
                while len(found) != limit and (key := rows.key()) is not None and first <= key < after:
                    found.append(rows.value())
                    rows.prev() if reverse else rows.next()
                rows.status()
            except Exception as error:
                raise translated(error, self._database.folder, "read") from error
            finally:
                del rows  # as in `Database.values`
        return found

    def close(self) -> None:
        """Let go of the rows, when nobody reads them any more. Idempotent."""
        with self._lock:
            self._rows = None
        self._database.ended(self)

    def _opened(self) -> RdictIter:
        if self._rows is None:
            raise ClosedError(self._database.folder)
        return self._rows
