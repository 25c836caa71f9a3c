"""Prepares the log folder of a stopped Kafka broker: local logs that begin where the segments of a topic end."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from diskless_core.log import offset_checkpoint
from diskless_core.log.leader_epochs import CorruptCheckpointError
from diskless_core.protocol.names import partition_name, uuid_text
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.tiering.migration import kafka_export

_LOCK = ".lock"


class LogDirError(Exception):
    """The folder cannot be prepared; nothing in it has changed. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLog:
    """What is to become of a partition's local log: empty, and its next record gets `next_offset`.

    `producer_snapshot` is that of the last segment.
    """

    partition: TopicIdPartition
    log_start_offset: int
    next_offset: int
    producer_snapshot: bytes

    @property
    def folder_name(self) -> str:
        return self.partition.name


def topic_id_in(log_dir: Path, topic: str, partition: int) -> UUID | None:
    """The id of the topic whose partition lies in a log folder; None where it does not."""
    file = log_dir / partition_name(topic, partition) / kafka_export.PARTITION_METADATA
    return kafka_export.topic_id_of(file.read_bytes()) if file.exists() else None


def prepare(log_dir: Path, logs: Sequence[LocalLog]) -> None:
    """Make the local logs of partitions that lie in a log folder. Done again, it changes nothing.

    Raises:
        LogDirError: a broker runs on it, it is no log folder, or a partition has records of its own.
    """
    with _locked(log_dir):
        for log in logs:
            _check(log_dir / log.folder_name, log)
        checkpoints = _changed_checkpoints(log_dir, logs)
        for log in logs:
            _write_log(log_dir / log.folder_name, log)
        for file, content in checkpoints.items():
            _replace(file, content)


@contextmanager
def _locked(log_dir: Path) -> Iterator[None]:
    if not (log_dir / "meta.properties").exists():
        raise LogDirError(f"{log_dir} is no log folder of Kafka: it has no meta.properties")
    with (log_dir / _LOCK).open("a") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LogDirError(f"a broker is running on {log_dir}: stop it first") from error
        yield


def _check(folder: Path, log: LocalLog) -> None:
    if not folder.is_dir():
        raise LogDirError(f"{folder} does not exist")
    problem = kafka_export.local_log_problem(
        {path.name: path.stat().st_size for path in folder.iterdir()}, log.next_offset
    )
    if problem is not None:
        raise LogDirError(f"{folder} cannot be prepared: {problem}")
    found = kafka_export.topic_id_of((folder / kafka_export.PARTITION_METADATA).read_bytes())
    if found != log.partition.topic_id:
        raise LogDirError(f"{folder} belongs to a topic of the id {uuid_text(found)}")


def _changed_checkpoints(log_dir: Path, logs: Sequence[LocalLog]) -> dict[Path, bytes]:
    next_offsets = {(log.partition.topic, log.partition.partition): log.next_offset for log in logs}
    start_offsets = {(log.partition.topic, log.partition.partition): log.log_start_offset for log in logs}
    changed = {}
    for name, offsets in {
        offset_checkpoint.HIGH_WATERMARKS: next_offsets,
        offset_checkpoint.RECOVERY_POINTS: next_offsets,
        offset_checkpoint.LOG_START_OFFSETS: start_offsets,
    }.items():
        file = log_dir / name
        try:
            known = offset_checkpoint.decode(file.read_bytes() if file.exists() else b"")
        except CorruptCheckpointError as error:
            raise LogDirError(f"{file}: {error}") from error
        changed[file] = offset_checkpoint.encode(known | offsets)
    return changed


def _write_log(folder: Path, log: LocalLog) -> None:
    files = kafka_export.local_log_files(log.next_offset, log.producer_snapshot)
    for name, content in files.items():
        _replace(folder / name, content)
    for name in kafka_export.superfluous_files([path.name for path in folder.iterdir()], log.next_offset):
        (folder / name).unlink()
    _sync(folder)


def _replace(file: Path, content: bytes) -> None:
    temporary = file.with_name(f"{file.name}.tmp")
    with temporary.open("wb") as written:
        written.write(content)
        written.flush()
        os.fsync(written.fileno())
    temporary.replace(file)
    _sync(file.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
