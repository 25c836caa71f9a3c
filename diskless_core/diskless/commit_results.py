"""The answer to a CommitFile as the object's row in FILES keeps it, so that a repeat gets the same one. Pure.

Only this module knows how a result is packed. (KIP-1164, "Local state machine".)
"""

from __future__ import annotations

import struct
import uuid

from diskless_core.diskless.commands import NO_OFFSET, NO_TIMESTAMP, BatchResult, CommitBatch
from diskless_core.protocol.errors import ERROR_CODES, ErrorCode
from diskless_core.protocol.file_committed import FileCommitted

_RESULT = struct.Struct(">hqq?")
"""A `BatchResult`'s error, base offset, append time, and whether it is a duplicate. They lie one behind the other."""


def reason_of(error: ErrorCode, batch: CommitBatch) -> str:
    """Why a coordinator has refused a batch with this error, for people to read. A repeat is told the same."""
    partition = f"partition {batch.partition} of the topic with the id {uuid.UUID(bytes=batch.topic_id)}"
    producer = f"the producer {batch.producer_id} with the epoch {batch.producer_epoch}"
    match error:
        case ErrorCode.UNKNOWN_TOPIC_ID:
            return f"This coordinator has no topic with the id {uuid.UUID(bytes=batch.topic_id)}."
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"This coordinator does not have the {partition}."
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return f"In the {partition} a later epoch is known than that of {producer}."
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return f"The sequence number {batch.base_sequence} of {producer} does not follow in the {partition}."
        case ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return f"The sequence number {batch.base_sequence} of {producer} came long ago to the {partition}."
        case ErrorCode.KAFKA_STORAGE_ERROR:
            return "By its key the object was created too long ago to be committed. Send the records in another one."
        case ErrorCode.INVALID_REQUEST:
            return "The owners make no sense, or another object with this key was committed before."
    return f"The coordinator refused the batch with {error.name}."


def packed_results(record: FileCommitted) -> bytes:
    """The answer to the CommitFile that wrote this record, in the order of its batches."""
    pack = _RESULT.pack
    results = [b""] * (len(record.batch_order) + len(record.refused) + len(record.duplicates))
    accepted = [batch for _, partitions in record.topics for _, batches in partitions for batch in batches]
    for index, batch in zip(record.batch_order, accepted, strict=True):
        results[index] = pack(ErrorCode.NONE, batch.base_offset, batch.log_append_timestamp, False)
    for refused in record.refused:
        results[refused.request_index] = pack(refused.error_code, NO_OFFSET, NO_TIMESTAMP, False)
    for repeated in record.duplicates:
        results[repeated.request_index] = pack(ErrorCode.NONE, repeated.base_offset, repeated.log_append_time, True)
    return b"".join(results)


def count_results(data: bytes) -> int:
    """How many results were packed."""
    return len(data) // _RESULT.size


def unpack_results(data: bytes) -> list[BatchResult]:
    """The results in their order."""
    of = BatchResult.of
    return [
        of(ERROR_CODES[code], base_offset, append_time, is_duplicate)
        for code, base_offset, append_time, is_duplicate in _RESULT.iter_unpack(data)
    ]
