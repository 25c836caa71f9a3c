"""What is asked of a Diskless coordinator and what it answers, as plain data. Pure.

(KIP-1164, "Diskless coordinator API".)
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from diskless_core.protocol.commit_file import BatchResult as BatchResult
from diskless_core.protocol.commit_file import CommitBatch as CommitBatch
from diskless_core.protocol.commit_file import packed_fields
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal.runs import Run

OBJECT_FORMAT_WAL = 1
"""KIP-1164's WRITE_AHEAD_MULTI_SEGMENT."""

MAX_COMMIT_BATCHES = 4_096
"""Batches of one WAL object, and so of one CommitFile and of one entry of a coordinator's log. What cannot be divided
takes a few milliseconds for so many; more of them would not make objects much cheaper."""

NO_TIMESTAMP = -1
NO_OFFSET = -1


class TimestampType(IntEnum):
    """Whose clock a batch's timestamps come from; the value is Kafka's attribute bit."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class SpecialTimestamp(IntEnum):
    """What negative timestamps of ListOffsets ask for."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class PartitionKey(NamedTuple):
    """A partition by topic id, also the beginning of its keys in the coordinator's tables."""

    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFile:
    """Give the batches of an uploaded object their offsets. Batches of a partition keep the order they have here."""

    object_key: str
    object_format: int = OBJECT_FORMAT_WAL
    file_size: int
    uploader_id: int
    owner_ids: Sequence[int]
    batches: Sequence[CommitBatch]

    def is_owned_by(self, shard_index: int) -> bool:
        """Whether the owners are named once each, this shard among them: else it could not be said who deletes it."""
        return shard_index in self.owner_ids and len(set(self.owner_ids)) == len(self.owner_ids)

    def digest(self) -> bytes:
        """What tells this commit from another one of the same object key."""
        content = hashlib.blake2b(struct.pack(">bq", self.object_format, self.file_size), digest_size=16)
        content.update(packed_fields(self.batches))
        return content.digest()


class DeletedRecords(NamedTuple):
    """Where a partition begins after DeleteRecords; -1 with an error."""

    error: ErrorCode
    log_start_offset: int = NO_OFFSET


class AskedRuns(NamedTuple):
    """What is asked of a partition: runs from the one that contains `offset` on, about `max_bytes` of them."""

    partition: PartitionKey
    offset: int
    max_bytes: int


class FoundRuns(NamedTuple):
    """What FindBatches knows of one partition. Below `local_start_offset` there are no runs, but segments."""

    error: ErrorCode
    log_start_offset: int = NO_OFFSET
    high_watermark: int = NO_OFFSET
    runs: Sequence[Run] = ()
    local_start_offset: int = NO_OFFSET


class ListedOffset(NamedTuple):
    """An answer of ListOffsets; timestamp and offset are -1 where there is none."""

    error: ErrorCode = ErrorCode.NONE
    timestamp: int = NO_TIMESTAMP
    offset: int = NO_OFFSET


class HandOver(NamedTuple):
    """An object whose batches are gone in the shard that gives it, for the next one of its owners.

    Times are in milliseconds since the epoch; `dead_at` is that of the latest death in any of the owners so far.
    """

    object_key: str
    owner_ids: Sequence[int]
    committed_at: int
    dead_at: int
