"""Which batches a producer may send: everything that a header can tell, and that the records can hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diskless_core.config.types import RecordValidation
from diskless_core.diskless.commands import TimestampType
from diskless_core.produce.record_checks import RecordChecks
from diskless_core.produce.validation import InvalidBatchError, TopicRules, ValidBatch, validate
from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import NOW_MS, batch_of, with_header

RULES = TopicRules(
    max_message_bytes=1000,
    timestamp_type=TimestampType.CREATE_TIME,
    timestamp_before_max_ms=60_000,
    timestamp_after_max_ms=30_000,
)
GOOD = batch_of(b"a", b"b", b"c")
CHECKS = RecordChecks(RecordValidation.FIRST)
ZSTD, LAST_BEFORE_ZSTD = 4, 6


def judged(batch: bytes | None, rules: TopicRules = RULES, version: int = 9) -> ErrorCode:
    try:
        validate(memoryview(batch) if batch is not None else None, rules, version, NOW_MS, CHECKS)
    except InvalidBatchError as error:
        return error.code
    return ErrorCode.NONE


def test_a_good_batch_is_taken_as_it_is() -> None:
    found = validate(memoryview(GOOD), RULES, 9, NOW_MS, CHECKS)
    assert found == ValidBatch(memoryview(GOOD), 3, NOW_MS, 0, -1, -1, -1, -1)


def test_the_last_sequence_wraps() -> None:
    found = validate(
        memoryview(with_header(GOOD, producer_id=7, producer_epoch=1, base_sequence=2**31 - 1)),
        RULES,
        9,
        NOW_MS,
        CHECKS,
    )
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence) == (7, 1, 2**31 - 1, 1)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (GOOD + b"\0", ErrorCode.INVALID_RECORD),
        (GOOD[:-1], ErrorCode.INVALID_RECORD),
        (GOOD[:60], ErrorCode.INVALID_RECORD),
        (with_header(GOOD, magic=1), ErrorCode.INVALID_RECORD),
        (with_header(GOOD, magic=3), ErrorCode.CORRUPT_MESSAGE),
        (with_header(GOOD, crc=1), ErrorCode.CORRUPT_MESSAGE),
        (with_header(GOOD, batch_length=10), ErrorCode.CORRUPT_MESSAGE),
        (with_header(GOOD, batch_length=-10), ErrorCode.CORRUPT_MESSAGE),
        (with_header(GOOD, last_offset_delta=3), ErrorCode.INVALID_RECORD),
        (with_header(GOOD, record_count=2), ErrorCode.INVALID_RECORD),
        (with_header(GOOD, record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (with_header(GOOD, record_count=-3, last_offset_delta=-4), ErrorCode.INVALID_RECORD),
        (with_header(GOOD, attributes=1 << 5), ErrorCode.INVALID_RECORD),
        (with_header(GOOD, attributes=1 << 4), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (with_header(GOOD, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (with_header(GOOD, producer_id=7, producer_epoch=-1, base_sequence=0), ErrorCode.INVALID_RECORD),
        (with_header(GOOD, producer_id=7, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
        (with_header(GOOD, attributes=1 << 3), ErrorCode.INVALID_TIMESTAMP),
        (batch_of(b"x" * 1000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(b"a", timestamp_ms=NOW_MS + 30_001), ErrorCode.INVALID_TIMESTAMP),
        (batch_of(b"a", timestamp_ms=NOW_MS + 30_000), ErrorCode.NONE),
        (batch_of(b"a", timestamp_ms=NOW_MS - 60_001), ErrorCode.INVALID_TIMESTAMP),
        (batch_of(b"a", timestamp_ms=NOW_MS - 60_000), ErrorCode.NONE),
        (with_header(GOOD, base_offset=-5), ErrorCode.INVALID_RECORD),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "batch",
)
def test_each_defect_has_kafkas_error_code(batch: bytes | None, error: ErrorCode) -> None:
    assert judged(batch) is error


def test_zstd_needs_a_client_that_knows_it() -> None:
    batch = batch_of(b"a" * 500, compression=ZSTD)
    assert judged(batch, version=LAST_BEFORE_ZSTD) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert judged(batch, version=LAST_BEFORE_ZSTD + 1) is ErrorCode.NONE


def test_where_the_broker_sets_the_time_the_producers_does_not_matter() -> None:
    rules = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert judged(batch_of(b"a", timestamp_ms=1), rules) is ErrorCode.NONE
    assert judged(with_header(GOOD, attributes=1 << 3), rules) is ErrorCode.NONE
    assert validate(memoryview(GOOD), rules, 9, NOW_MS, CHECKS).timestamp_type == TimestampType.LOG_APPEND_TIME
