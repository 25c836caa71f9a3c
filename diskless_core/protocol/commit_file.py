"""DisklessCommitFile packed and unpacked by hand, request and response, with a plain tuple for each batch.

(KIP-1164, "DisklessCommitFile".) Its rows are as many as the batches of a WAL object, so it goes past the generic
codec, whose bytes it equals. Headers and frames are not part of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple

from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.packed import (
    INT32,
    MALFORMED,
    NO_TAGS,
    PackedError,
    PackedReader,
    pack_array,
    pack_integers,
    pack_string,
    pack_tagged,
)
from diskless_core.protocol.record_batch import MAGIC, NO_TIMESTAMP
from diskless_core.protocol.structure import FrameError
from diskless_core.protocol.varint import encode_uvarint

DEFAULT_TIMEOUT_MS = 60_000
NO_UPLOADER = -1
_NO_OFFSET = -1

_OBJECT = struct.Struct(">bq")
_BATCH = struct.Struct(">bi16siiiqqqbqhiix")
_FIELDS = struct.Struct(">16siiiiqbqhii")
_SHARD = struct.Struct(">iix")
_RESULT = struct.Struct(">hBqqq?x")
_RESULT_OFFSETS = struct.Struct(">qqq?")
_ERROR_CODE = struct.Struct(">h")
_NULL_MESSAGE_AT = 2

_SMALLEST_FILE_BYTES = 1 + _OBJECT.size + 1 + 1 + 1
"""An object without a key, owners and batches, and its tagged section."""

_NO_REQUEST_ID = 0
_MAX_RECORDS = 2**31 - 1


class CommitBatch(NamedTuple):
    """One batch of an uploaded object that wants offsets: what a broker asks of the coordinator.

    `byte_offset` counts from the object's first byte, `max_timestamp` is in milliseconds since the epoch.
    """

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


def packed_fields(batches: Sequence[CommitBatch]) -> bytes:
    """All that these batches say, to be told from others by. Logs keep digests of it: it has to stay as it is."""
    return b"".join(starmap(_FIELDS.pack, batches))


class ShardPart(NamedTuple):
    """So many of a request's batches, in their order, are for one coordinator."""

    shard_index: int
    batch_count: int


class OtherFile(NamedTuple):
    """A further object of a list: all its batches are for the only coordinator that the request names."""

    object_key: str
    object_format: int
    file_size: int
    owner_ids: Sequence[int]
    batches: Sequence[CommitBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFileRequest:
    """The request's content: the KIP's fields, and ours with a tag, `shards`, `uploader_id` and `others`."""

    object_key: str
    object_format: int
    file_size: int
    owner_ids: Sequence[int]
    batches: Sequence[CommitBatch]
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    shards: Sequence[ShardPart] = ()
    uploader_id: int = NO_UPLOADER
    others: Sequence[OtherFile] = ()

    @property
    def batch_count(self) -> int:
        """Batches of all its objects: as many results does the answer have."""
        return len(self.batches) + sum(len(other.batches) for other in self.others)


class BatchResult(NamedTuple):
    """What became of one batch: the coordinator's answer to a broker. The last two fields exist only over the wire.

    `append_time` is the commit clock, whatever the topic's timestamp type. Of an object that was refused because it was
    created too long ago, with KAFKA_STORAGE_ERROR, it is a time that is late enough for another object.

    Attributes:
        error: one that a newer node has made up is UNKNOWN_SERVER_ERROR.
        log_start_offset: where the partition begins; -1 where it is not known or not sent.
        message: why a coordinator refused the batch, or, of each of the batches, why it does not answer.
    """

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = _NO_OFFSET
    append_time: int = NO_TIMESTAMP
    is_duplicate: bool = False
    log_start_offset: int = _NO_OFFSET
    message: str | None = None

    @staticmethod
    def of(
        error: ErrorCode,
        base_offset: int,
        append_time: int,
        is_duplicate: bool,
        log_start_offset: int = _NO_OFFSET,
    ) -> BatchResult:
        """A result without a message. There is one for each batch: the constructor takes longer."""
        return tuple.__new__(BatchResult, (error, base_offset, append_time, is_duplicate, log_start_offset, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFileResponse:
    """The response's content; results in the order of the request's batches, then of those of its other objects."""

    results: Sequence[BatchResult]
    throttle_time_ms: int = 0


def pack_request(request: CommitFileRequest) -> bytes:
    """The request's body, as the generic codec encodes it. Offsets of a batch's records begin at 0.

    Raises:
        struct.error: a number does not fit its field.
    """
    return b"".join(
        (
            *_packed_file(request),
            INT32.pack(request.timeout_ms),
            pack_tagged(_tagged_fields(request)),
        )
    )


def _packed_file(file: CommitFileRequest | OtherFile) -> Iterator[bytes]:
    pack = _BATCH.pack
    yield pack_string(file.object_key)
    yield _OBJECT.pack(file.object_format, file.file_size)
    yield pack_integers(file.owner_ids)
    yield encode_uvarint(len(file.batches) + 1)
    for topic_id, partition, position, size, records, *rest in file.batches:
        yield pack(MAGIC, _NO_REQUEST_ID, topic_id, partition, position, size, 0, records - 1, *rest)


def _tagged_fields(request: CommitFileRequest) -> Iterator[tuple[int, bytes]]:
    if request.shards:
        yield 0, pack_array(_SHARD, request.shards)
    if request.uploader_id != NO_UPLOADER:
        yield 1, INT32.pack(request.uploader_id)
    if request.others:
        packed = [part for other in request.others for part in (*_packed_file(other), NO_TAGS)]
        yield 2, b"".join((encode_uvarint(len(request.others) + 1), *packed))


def unpack_request(body: bytes | memoryview) -> CommitFileRequest:
    """The request that `body` consists of; tags unknown to us are skipped.

    Raises:
        FrameError: it is malformed, a batch is of another magic than 2, or has no records or more than 2**31 - 1.
    """
    reader = PackedReader(body)
    try:
        file = _file(reader)
        (timeout_ms,) = reader.fixed(INT32)
        tagged = reader.tagged_section(_REQUEST_TAGS)
        reader.expect_end()
    except MALFORMED as error:
        raise FrameError(f"a DisklessCommitFileRequest is malformed: {error}") from error
    return CommitFileRequest(
        **file._asdict(),
        timeout_ms=timeout_ms,
        **tagged,
    )


def _file(reader: PackedReader) -> OtherFile:
    object_key = reader.string()
    object_format, file_size = reader.fixed(_OBJECT)
    return OtherFile(object_key, object_format, file_size, reader.integers(), _batches(reader.packed_rows(_BATCH)))


def _other_files(reader: PackedReader) -> tuple[OtherFile, ...]:
    files = []
    for _ in range(reader.count(_SMALLEST_FILE_BYTES)):
        files.append(_file(reader))
        reader.end_of_struct()
    return tuple(files)


def _batches(packed: memoryview) -> list[CommitBatch]:
    make = tuple.__new__
    batches = [
        make(CommitBatch, (topic_id, partition, byte_offset, size, last_offset - base_offset + 1, *rest))
        for _, _, topic_id, partition, byte_offset, size, base_offset, last_offset, *rest in _BATCH.iter_unpack(packed)
    ]
    if not all(0 < batch.record_count <= _MAX_RECORDS for batch in batches):
        raise PackedError("it has a batch without records, or with more than fit one")
    if any(magic != MAGIC for magic in packed[:: _BATCH.size]):
        raise PackedError(f"it has a batch of another magic than {MAGIC}")
    return batches


_REQUEST_TAGS: dict[int, tuple[str, Callable[[PackedReader], Any]]] = {
    0: ("shards", lambda reader: reader.rows(_SHARD, ShardPart._make)),
    1: ("uploader_id", lambda reader: reader.fixed(INT32)[0]),
    2: ("others", _other_files),
}


def pack_response(response: CommitFileResponse) -> bytes:
    """The response's body, as the generic codec encodes it.

    Raises:
        struct.error: a number does not fit its field.
    """
    parts = [INT32.pack(response.throttle_time_ms), encode_uvarint(len(response.results) + 1)]
    parts += map(_packed, response.results)
    parts.append(NO_TAGS)
    return b"".join(parts)


def _packed(result: BatchResult) -> bytes:
    error, base_offset, append_time, is_duplicate, log_start_offset, message = result
    if message is None:
        return _RESULT.pack(error, 0, base_offset, append_time, log_start_offset, is_duplicate)
    offsets = _RESULT_OFFSETS.pack(base_offset, append_time, log_start_offset, is_duplicate)
    return b"".join((_ERROR_CODE.pack(error), pack_string(message), offsets, NO_TAGS))


def unpack_response(body: bytes | memoryview) -> CommitFileResponse:
    """The response that `body` consists of; tags unknown to us are skipped.

    Raises:
        FrameError: it is malformed.
    """
    reader = PackedReader(body)
    try:
        (throttle_time_ms,) = reader.fixed(INT32)
        results = _results(reader)
        reader.tagged_section({})
        reader.expect_end()
    except MALFORMED as error:
        raise FrameError(f"a DisklessCommitFileResponse is malformed: {error}") from error
    return CommitFileResponse(results=results, throttle_time_ms=throttle_time_ms)


def _results(reader: PackedReader) -> list[BatchResult]:
    count, start = reader.count(_RESULT.size), reader.pos
    content = reader.take(count * _RESULT.size)
    # A result without a message takes just these bytes: where all markers say null, all of them stand at these places.
    if not any(content[_NULL_MESSAGE_AT :: _RESULT.size]) and not any(content[_RESULT.size - 1 :: _RESULT.size]):
        of = BatchResult.of
        return [
            of(code_of(code), base_offset, append_time, is_duplicate, log_start_offset)
            for code, _, base_offset, append_time, log_start_offset, is_duplicate in _RESULT.iter_unpack(content)
        ]
    reader.pos = start
    return [_result(reader) for _ in range(count)]


def _result(reader: PackedReader) -> BatchResult:
    (error_code,) = reader.fixed(_ERROR_CODE)
    message = reader.nullable_string()
    base_offset, append_time, log_start_offset, is_duplicate = reader.fixed(_RESULT_OFFSETS)
    reader.end_of_struct()
    return BatchResult(code_of(error_code), base_offset, append_time, is_duplicate, log_start_offset, message)
