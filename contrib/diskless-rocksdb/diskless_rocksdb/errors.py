"""What RocksDB says, in words that tell what to do.

rocksdict raises everything as a plain Exception, whose message begins with the kind of RocksDB's own status.
"""

from __future__ import annotations

from pathlib import Path

from diskless_core.plugin.coordinator_store import CoordinatorStoreError

_DAMAGED = ("Corruption", "NotFound", "IO error: No such file or directory")
_STALLED = ("Result incomplete", "Operation timed out")
_LOCKED = ("lock hold by current process", "While lock file")


class DamagedError(CoordinatorStoreError):
    """Files of the database are missing, or not as they were written."""

    def __init__(self, folder: Path, detail: object) -> None:
        super().__init__(
            f"the database {folder} is damaged ({detail}). Stop the broker, delete this folder and start the broker: "
            "the store is filled again from the log. Check the disk, too"
        )


class InUseError(CoordinatorStoreError):
    """Somebody else has the database open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"the database {folder} is open already, in another process or elsewhere in this one. Stop that process, "
            "or set another folder in coordinator_store.rocksdb.path"
        )


class StalledError(CoordinatorStoreError):
    """RocksDB takes no writes now."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"the database {folder} takes no writes, as its tables are written and merged more slowly: the disk is too "
            "slow, or coordinator_store.rocksdb.background.jobs too low"
        )


class ClosedError(CoordinatorStoreError):
    """The store, or what a snapshot is of, was closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"the database {folder} is closed: open the store again")


def translated(error: Exception, folder: Path, doing: str) -> CoordinatorStoreError:
    """The error to raise for one of rocksdict's that came up when `doing` something, such as "read"."""
    message = " ".join(str(error).split())
    if message.startswith(_DAMAGED):
        return DamagedError(folder, message)
    if message.startswith(_STALLED):
        return StalledError(folder)
    if any(words in message for words in _LOCKED):
        return InUseError(folder)
    return CoordinatorStoreError(
        f"cannot {doing} the database {folder}: {message}. Check that the folder can be written and has free space"
    )
