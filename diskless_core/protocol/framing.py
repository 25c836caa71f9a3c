"""Kafka's request and response frames: headers, guarded decoding of requests, encoding of responses without copies.

A frame is what follows the four bytes of its size on the wire. No I/O.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from diskless_core.protocol import follow_shard, produce_response, read_object
from diskless_core.protocol.codec import ApiMessage, Piece
from diskless_core.protocol.commit_file import CommitFileRequest, CommitFileResponse, pack_response, unpack_request
from diskless_core.protocol.follow_shard import FollowShardAnswer
from diskless_core.protocol.messages import REQUESTS, ApiVersionsRequest, DisklessCommitFileRequest, FetchResponse
from diskless_core.protocol.produce_response import ProduceAnswer
from diskless_core.protocol.read_object import ReadObjectAnswer
from diskless_core.protocol.structure import FrameError, check_structure, check_tagged_section
from diskless_core.protocol.varint import VarintError

__all__ = [
    "FrameError",
    "Request",
    "RequestHeader",
    "Response",
    "check_structure",
    "decode_request",
    "encode_body",
    "encode_request_header",
    "encode_response",
    "is_flexible",
    "parse_request_header",
]

_REQUEST_HEADER = struct.Struct(">hhi")
_INT16 = struct.Struct(">h")
_RESPONSE_HEADER = struct.Struct(">ii")
_CORRELATION_ID_BYTES = 4
_MAX_HEADER_TAGS = 1000

Request = ApiMessage | CommitFileRequest

Response = ApiMessage | CommitFileResponse | FollowShardAnswer | ProduceAnswer | ReadObjectAnswer


class RequestHeader(NamedTuple):
    """A request's header. `body` is the position in the frame where the request itself begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Read the header, version 1 or 2 by the api key and version that it names.

    Of an api key that this module does not know, version 1 is assumed. ApiVersions of an unknown version never fails
    once eight bytes are there, so that it can be answered with version 0 and UNSUPPORTED_VERSION; if the rest can't
    be read, the client id is None.

    Raises:
        FrameError: the header is malformed.
    """
    if len(frame) < _REQUEST_HEADER.size:
        raise FrameError(f"{len(frame)} bytes are no request")
    api_key, api_version, correlation_id = _REQUEST_HEADER.unpack_from(frame)
    try:
        client_id, body = _client_id(frame, _REQUEST_HEADER.size)
        if is_flexible(api_key, api_version):
            body = check_tagged_section(frame, body, len(frame), [_MAX_HEADER_TAGS, len(frame)], {})
    except (FrameError, VarintError, IndexError, struct.error) as error:
        if api_key == ApiVersionsRequest.API_KEY and not _is_valid(api_key, api_version):
            return RequestHeader(api_key, api_version, correlation_id, None, _REQUEST_HEADER.size)
        raise FrameError(f"the header of a request with api key {api_key} is malformed") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, body)


def _client_id(frame: memoryview, pos: int) -> tuple[str | None, int]:
    length = _INT16.unpack_from(frame, pos)[0]
    start = pos + _INT16.size
    if length < 0:
        return None, start
    if start + length > len(frame):
        raise FrameError("the client id is truncated")
    try:
        return str(frame[start : start + length], "utf-8"), start + length
    except UnicodeDecodeError as error:
        raise FrameError("the client id is not UTF-8") from error


def is_flexible(api_key: int, version: int) -> bool:
    """Whether requests and responses of this version have tagged fields, in their headers too."""
    api = REQUESTS.get(api_key)
    return api is not None and api.request.flexible_version_q(version)


def _is_valid(api_key: int, version: int) -> bool:
    first, last = REQUESTS[api_key].request.valid_versions
    return first <= version <= last


def decode_request(request_class: type[ApiMessage], version: int, frame: memoryview, pos: int) -> Request:
    """The request that `frame[pos:]` begins with. Records in it are slices of the frame, which has to outlive them.

    A DisklessCommitFileRequest, which may have very many batches, is a plain `CommitFileRequest`, not a message.

    Bytes behind the request are ignored, as Apache Kafka does: librdkafka leaves some when it asks for the metadata of
    all topics (its bug 5049).

    Raises:
        FrameError: the body is malformed, or the request has no such version.
    """
    if request_class is DisklessCommitFileRequest and is_flexible(request_class.API_KEY, version):
        return unpack_request(frame[pos:])
    end = check_structure(request_class, version, frame, pos)
    try:
        return request_class.decode(frame[pos:end], version=version)
    except UnicodeDecodeError as error:
        raise FrameError(f"{request_class.__name__} v{version} has a string that is not UTF-8") from error


def encode_request_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """What stands before a request's body in its frame."""
    name = client_id.encode()
    tags = b"\0" if is_flexible(api_key, version) else b""
    return _REQUEST_HEADER.pack(api_key, version, correlation_id) + _INT16.pack(len(name)) + name + tags


def encode_body(message: Response, version: int) -> list[Piece]:
    """A response without its header, in pieces."""
    if isinstance(message, ProduceAnswer):
        return [produce_response.pack(message, version)]
    if isinstance(message, CommitFileResponse):
        return [pack_response(message)]
    if isinstance(message, FollowShardAnswer):
        return [*follow_shard.pack(message)]
    if isinstance(message, ReadObjectAnswer):
        return [*read_object.pack(message)]
    if isinstance(message, FetchResponse):
        return message.encode_spliced(version)
    return [message.encode(version=version)]


def encode_response(message: Response, version: int, correlation_id: int) -> list[Piece]:
    """A response's frame with its size in front, in pieces to be written in order.

    The buffers that a FetchResponse holds as records are among the pieces and must not change until they are written.
    """
    pieces = encode_body(message, version)
    flexible = _has_tagged_header(message, version)
    body_bytes = sum(map(len, pieces))
    header = _RESPONSE_HEADER.pack(_CORRELATION_ID_BYTES + flexible + body_bytes, correlation_id)
    return [header + b"\0" if flexible else header, *pieces]


def _has_tagged_header(message: Response, version: int) -> bool:
    if isinstance(message, ProduceAnswer):
        return version >= produce_response.FLEXIBLE_SINCE
    if isinstance(message, CommitFileResponse | FollowShardAnswer | ReadObjectAnswer):
        return True
    return bool(message.flexible_version_q(version)) and ApiVersionsRequest.API_KEY != message.API_KEY
