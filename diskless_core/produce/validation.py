"""Whether a producer's batch may be appended: its header, and its records as far as `RecordChecks` says. Pure.

`validate` runs on the event loop. What it leaves over, because it takes long, `finished` does in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.diskless import producer_state
from diskless_core.diskless.commands import CommitBatch, PartitionKey, TimestampType
from diskless_core.produce.record_checks import LaterError, RecordChecks, check_records, check_unpacked
from diskless_core.protocol import record_batch
from diskless_core.protocol.compression import (
    CODECS,
    MAX_DECOMPRESSED_BYTES,
    Codec,
    DecompressedSizeError,
    DecompressionError,
    check_frame,
)
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import BatchHeader, CorruptBatchError, LargeRecordsError, TornBatchError
from diskless_core.protocol.record_walk import MalformedRecordsError, Walked

ZSTD = 4
ZSTD_SINCE_PRODUCE_VERSION = 7
_MAGIC_AT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """The topic's settings that a batch is judged by. Times are in milliseconds.

    Attributes:
        stored_with: the codec that every batch has to have; None where batches stay as they come.
    """

    max_message_bytes: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    stored_with: Codec | None = None


class Unfinished(NamedTuple):
    """What is left to do with a batch before it may be appended.

    Attributes:
        checks_all: whether every record is checked.
        codec: the codec that its topic wants, if it has another one; None where it stays as it is.
        now_ms: when the batch arrived.
    """

    rules: TopicRules
    checks_all: bool
    codec: Codec | None
    now_ms: int


class ValidBatch(NamedTuple):
    """A batch that may be appended, as the sender's frame holds it, with what the coordinator wants to know of it.

    `validate` makes it of a request's records. It is gathered for an object, where `at` gives it its place.

    Attributes:
        unfinished: what `finished` has to do first; None if it may be appended as it is.
    """

    data: memoryview
    record_count: int
    max_timestamp: int
    timestamp_type: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    unfinished: Unfinished | None = None

    def at(self, partition: PartitionKey, byte_offset: int) -> CommitBatch:
        """What the broker asks to commit when the object has the batch from this byte on."""
        return CommitBatch(
            topic_id=partition.topic_id,
            partition=partition.partition,
            byte_offset=byte_offset,
            size=len(self.data),
            record_count=self.record_count,
            max_timestamp=self.max_timestamp,
            timestamp_type=self.timestamp_type,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            last_sequence=self.last_sequence,
        )


class InvalidBatchError(Exception):
    """The batch is refused; `code` and the message go to the client.

    Attributes:
        is_from_the_log: whether Apache Kafka finds it out only where it appends, and then tells the log start offset.
    """

    def __init__(self, code: ErrorCode, message: str, *, is_from_the_log: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_from_the_log = is_from_the_log


class _UnfitContentError(InvalidBatchError):
    """The batch is whole, but what it says of itself does not do."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message, is_from_the_log=True)


def validate(
    records: memoryview | None, rules: TopicRules, produce_version: int, now_ms: int, checks: RecordChecks
) -> ValidBatch:
    """Check the records that a request brings for one partition: exactly one v2 batch, whole and sound.

    What is left to do is in `unfinished` of the batch that is returned.

    Raises:
        InvalidBatchError: with the error code that Apache Kafka has for it.
    """
    if not records:
        raise InvalidBatchError(ErrorCode.INVALID_RECORD, "a partition of a Produce request needs one record batch")
    header = _header(records)
    _check_content(records, header, rules, produce_version)
    _check_producer(header)
    codec = None if rules.stored_with is None or rules.stored_with.number == header.compression else rules.stored_with
    checks_all = checks.is_whole(header, is_unpacked=codec is not None)
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        _check_timestamp_type(header)
        # The header alone refuses no batch: its records may have other timestamps, and then it is corrected.
        if _timestamp_problem(header.base_timestamp, header.max_timestamp, rules, now_ms) is not None:
            checks_all = True
    walked = unfinished = None
    try:
        if header.compression:
            check_frame(header.compression, records[record_batch.HEADER_BYTES :])
        if codec is not None:
            unfinished = Unfinished(rules, checks_all, codec, now_ms)
        else:
            walked = checks.at_once(records, header, whole=checks_all)
    except LaterError:
        unfinished = Unfinished(rules, checks_all, None, now_ms)
    except (MalformedRecordsError, DecompressionError) as error:
        raise _UnfitContentError(ErrorCode.INVALID_RECORD, str(error)) from error
    batch = ValidBatch(
        data=records,
        record_count=header.record_count,
        max_timestamp=header.max_timestamp,
        timestamp_type=rules.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=(
            producer_state.last_sequence(header.base_sequence, header.record_count) if header.producer_id >= 0 else -1
        ),
        unfinished=unfinished,
    )
    return batch if walked is None else _with_true_timestamp(batch, header, walked, rules, now_ms)


def finished(batch: ValidBatch) -> ValidBatch:
    """Do what `validate` left over, in a thread: check the records, and compress them as their topic wants.

    Raises:
        InvalidBatchError: with the error code that Apache Kafka has for it, or MESSAGE_TOO_LARGE for records that
            become too large on the way.
    """
    if batch.unfinished is None:
        return batch
    rules, checks_all, codec, now_ms = batch.unfinished
    header = record_batch.read_header(batch.data)
    try:
        if codec is None:
            walked = check_records(batch.data, header, whole=checks_all)
            data = batch.data
        else:
            plain = record_batch.plain_records(batch.data, _max_plain_bytes(codec, rules))
            walked = check_unpacked(memoryview(plain), header, whole=checks_all)
            data = memoryview(record_batch.recompressed(batch.data, plain, codec))
    except (LargeRecordsError, DecompressedSizeError) as error:
        raise InvalidBatchError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except (MalformedRecordsError, DecompressionError, CorruptBatchError) as error:
        raise _UnfitContentError(ErrorCode.INVALID_RECORD, str(error)) from error
    if len(data) > rules.max_message_bytes:
        raise InvalidBatchError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(data)} bytes once it is compressed again, the topic's max.message.bytes is "
            f"{rules.max_message_bytes}",
        )
    done = batch._replace(data=data, unfinished=None)
    return done if walked is None else _with_true_timestamp(done, header, walked, rules, now_ms)


def _max_plain_bytes(codec: Codec, rules: TopicRules) -> int:
    if codec.number == CODECS["uncompressed"]:
        return min(MAX_DECOMPRESSED_BYTES, rules.max_message_bytes)
    return MAX_DECOMPRESSED_BYTES


def _with_true_timestamp(
    batch: ValidBatch, header: BatchHeader, walked: Walked, rules: TopicRules, now_ms: int
) -> ValidBatch:
    """The batch with the latest timestamp of its records in its header, as Apache Kafka corrects it."""
    if rules.timestamp_type is not TimestampType.CREATE_TIME:
        return batch
    latest = max(_as_int64(header.base_timestamp + walked.latest_delta), record_batch.NO_TIMESTAMP)
    problem = _timestamp_problem(_as_int64(header.base_timestamp + walked.earliest_delta), latest, rules, now_ms)
    if problem is not None:
        raise _UnfitContentError(ErrorCode.INVALID_TIMESTAMP, problem)
    if latest == header.max_timestamp:
        return batch
    data = bytearray(batch.data)
    record_batch.patch_max_timestamp(data, 0, latest)
    return batch._replace(data=memoryview(data), max_timestamp=latest)


def _as_int64(timestamp: int) -> int:
    """A base and a delta may add up to more than a header can hold."""
    return max(-(2**63), min(timestamp, 2**63 - 1))


def _header(records: memoryview) -> BatchHeader:
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != record_batch.MAGIC:
        magic = records[_MAGIC_AT]
        code = ErrorCode.INVALID_RECORD if magic < record_batch.MAGIC else ErrorCode.CORRUPT_MESSAGE
        raise InvalidBatchError(code, f"message format {magic} is not accepted, only {record_batch.MAGIC}")
    try:
        header = record_batch.read_header(records)
    except TornBatchError as error:
        raise InvalidBatchError(ErrorCode.INVALID_RECORD, str(error)) from error
    except CorruptBatchError as error:
        raise InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if header.size < len(records):
        raise InvalidBatchError(
            ErrorCode.INVALID_RECORD, "a Produce request must have exactly one record batch per partition"
        )
    return header


def _check_content(records: memoryview, header: BatchHeader, rules: TopicRules, produce_version: int) -> None:
    if header.size > rules.max_message_bytes:
        raise InvalidBatchError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, the topic's max.message.bytes is {rules.max_message_bytes}",
        )
    if not record_batch.crc_is_valid(records, 0, header):
        raise InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    if header.base_offset != 0:
        raise _UnfitContentError(
            ErrorCode.INVALID_RECORD, f"the base offset of a new batch has to be 0, but it is {header.base_offset}"
        )
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise _UnfitContentError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records and last offset delta {header.last_offset_delta} contradict each other",
        )
    if header.is_transactional:
        raise InvalidBatchError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported")
    if header.is_control:
        raise _UnfitContentError(ErrorCode.INVALID_RECORD, "control batches are not accepted")
    if header.compression > ZSTD or (header.compression == ZSTD and produce_version < ZSTD_SINCE_PRODUCE_VERSION):
        raise InvalidBatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression type {header.compression} cannot be used with Produce version {produce_version}",
        )


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise _UnfitContentError(
            ErrorCode.INVALID_RECORD, "a batch with a producer id needs a producer epoch and a sequence number"
        )


def _check_timestamp_type(header: BatchHeader) -> None:
    if header.is_log_append_time:
        raise _UnfitContentError(
            ErrorCode.INVALID_TIMESTAMP, "producers must not set LogAppendTime; the topic uses CreateTime"
        )


def _timestamp_problem(earliest: int, latest: int, rules: TopicRules, now_ms: int) -> str | None:
    if latest >= 0 and latest - now_ms > rules.timestamp_after_max_ms:
        return f"timestamp {latest} is too far in the future, see message.timestamp.after.max.ms"
    if earliest >= 0 and now_ms - earliest > rules.timestamp_before_max_ms:
        return f"timestamp {earliest} is too far in the past, see message.timestamp.before.max.ms"
    return None
