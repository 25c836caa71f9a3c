"""What is asked of a Diskless coordinator and what it answers, as plain data (KIP-1164, "Diskless coordinator API")."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from diskless_core.protocol.errors import ErrorCode

OBJECT_FORMAT_WAL = 1
"""KIP-1164's WRITE_AHEAD_MULTI_SEGMENT."""

NO_TIMESTAMP = -1
NO_OFFSET = -1

_DIGESTED = struct.Struct(">16siiiiqbqhii")
_RESULT = struct.Struct(">hqq?")


class TimestampType(IntEnum):
    """Whose clock a batch's timestamps come from; the value is Kafka's attribute bit."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class PartitionKey(NamedTuple):
    """A partition by topic id, also the beginning of its keys in the coordinator's tables."""

    topic_id: bytes
    partition: int


class CommitBatch(NamedTuple):
    """One batch of an uploaded object that wants offsets. `byte_offset` counts from the object's first byte."""

    topic_id: bytes
    partition: int
    byte_offset: int
    size: int
    record_count: int
    max_timestamp: int
    timestamp_type: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFile:
    """Give the batches of an uploaded object their offsets. Batches of a partition keep the order they have here."""

    object_key: str
    object_format: int = OBJECT_FORMAT_WAL
    file_size: int
    uploader_id: int
    owner_ids: Sequence[int]
    batches: Sequence[CommitBatch]

    def digest(self) -> bytes:
        """What tells this commit from another one of the same object key."""
        content = hashlib.blake2b(struct.pack(">bq", self.object_format, self.file_size), digest_size=16)
        for batch in self.batches:
            content.update(_DIGESTED.pack(*batch))
        return content.digest()


class BatchResult(NamedTuple):
    """What became of one batch. `append_time` is the commit clock, whatever the topic's timestamp type."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = NO_OFFSET
    append_time: int = NO_TIMESTAMP
    is_duplicate: bool = False


def pack_results(results: Sequence[BatchResult]) -> bytes:
    return b"".join(_RESULT.pack(*result) for result in results)


def unpack_results(data: bytes) -> list[BatchResult]:
    return [
        BatchResult(ErrorCode(error), base_offset, append_time, is_duplicate)
        for error, base_offset, append_time, is_duplicate in _RESULT.iter_unpack(data)
    ]


class Run(NamedTuple):
    """Adjacent batches of one partition in one object, with adjacent offsets; readers walk the batch headers.

    `bytes_before` is the size of everything that was appended to the partition before it, deleted or not.
    """

    base_offset: int
    last_offset: int
    object_key: str
    byte_offset: int
    byte_size: int
    append_time: int
    max_timestamp: int
    timestamp_type: int
    bytes_before: int = 0


class DeletedRecords(NamedTuple):
    """Where a partition begins after DeleteRecords; -1 with an error."""

    error: ErrorCode
    log_start_offset: int = NO_OFFSET


class FoundRuns(NamedTuple):
    """What FindBatches knows of one partition."""

    error: ErrorCode
    log_start_offset: int = NO_OFFSET
    high_watermark: int = NO_OFFSET
    runs: Sequence[Run] = ()
