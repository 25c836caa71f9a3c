"""Whether a producer's batch may be appended, judged from its header alone: nothing is decompressed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.diskless import producer_state
from diskless_core.diskless.commands import CommitBatch, PartitionKey, TimestampType
from diskless_core.protocol import record_batch
from diskless_core.protocol.compression import Codec
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import BatchHeader, CorruptBatchError, TornBatchError

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


class ValidBatch(NamedTuple):
    """A batch that may be appended, as the sender's frame holds it, with what the coordinator wants to know of it.

    `validate` makes it of a request's records. It is gathered for an object, where `at` gives it its place.

    Attributes:
        recompressed_by: the rules of its topic, if they want another codec than it has; None lets it stay as it is.
    """

    data: memoryview
    record_count: int
    max_timestamp: int
    timestamp_type: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    recompressed_by: TopicRules | None = None

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


def validate(records: memoryview | None, rules: TopicRules, produce_version: int, now_ms: int) -> ValidBatch:
    """Check the records that a request brings for one partition: exactly one v2 batch, whole and sound.

    Raises:
        InvalidBatchError: with the error code that Apache Kafka has for it.
    """
    if not records:
        raise InvalidBatchError(ErrorCode.INVALID_RECORD, "a partition of a Produce request needs one record batch")
    header = _header(records)
    _check_content(records, header, rules, produce_version)
    _check_producer(header)
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        _check_timestamps(header, rules, now_ms)
    return ValidBatch(
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
        recompressed_by=None if rules.stored_with is None or rules.stored_with.number == header.compression else rules,
    )


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


def _check_timestamps(header: BatchHeader, rules: TopicRules, now_ms: int) -> None:
    if header.is_log_append_time:
        raise _UnfitContentError(
            ErrorCode.INVALID_TIMESTAMP, "producers must not set LogAppendTime; the topic uses CreateTime"
        )
    if header.max_timestamp >= 0 and header.max_timestamp - now_ms > rules.timestamp_after_max_ms:
        raise _UnfitContentError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is too far in the future, see message.timestamp.after.max.ms",
        )
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > rules.timestamp_before_max_ms:
        raise _UnfitContentError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is too far in the past, see message.timestamp.before.max.ms",
        )
