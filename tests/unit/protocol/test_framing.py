"""Frames: headers, guarded decoding, responses whose records are spliced in."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse as StockFetchResponse
from kafka.protocol.producer import ProduceRequest as StockProduceRequest

from diskless_core.protocol import messages
from diskless_core.protocol.framing import (
    FrameError,
    RequestHeader,
    decode_request,
    encode_response,
    parse_request_header,
)


def versions_of(message_class: Any) -> range:
    first, last = message_class.valid_versions
    return range(first, last + 1)


@pytest.mark.parametrize("api", messages.REQUESTS.values(), ids=lambda api: api.request.__name__)
@pytest.mark.parametrize("client_id", ["", "client", "diskless_az=日本"])
def test_the_header_of_every_api_and_version_is_read_as_clients_write_it(api: messages.Api, client_id: str) -> None:
    for version in versions_of(api.request):
        request: Any = api.request(version=version)
        request.with_header(correlation_id=-7, client_id=client_id)
        header = bytes(request.encode_header(flexible=api.request.flexible_version_q(version)))
        parsed = parse_request_header(memoryview(header + b"body"))
        assert parsed == RequestHeader(api.request.API_KEY, version, -7, client_id, len(header))


def test_a_client_id_may_be_null() -> None:
    assert parse_request_header(memoryview(struct.pack(">hhih", 3, 1, 5, -1))) == RequestHeader(3, 1, 5, None, 10)


def test_tags_in_a_header_are_skipped() -> None:
    frame = struct.pack(">hhih", 3, 9, 5, 1) + b"c" + b"\2\0\3abc\7\0" + b"body"
    assert bytes(frame[parse_request_header(memoryview(frame)).body :]) == b"body"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        struct.pack(">hhi", 3, 9, 5)[:-1],
        struct.pack(">hhi", 3, 9, 5),
        struct.pack(">hhih", 3, 9, 5, 4) + b"abc",
        struct.pack(">hhih", 3, 9, 5, 1) + b"\xff\0",
        struct.pack(">hhih", 3, 9, 5, 1) + b"c",
        struct.pack(">hhih", 3, 9, 5, 1) + b"c" + b"\1\0\3ab",
        struct.pack(">hhih", 3, 9, 5, 1) + b"c" + b"\x80" * 100_000,
    ],
)
def test_a_malformed_header_is_a_frame_error(frame: bytes) -> None:
    with pytest.raises(FrameError):
        parse_request_header(memoryview(frame))


@pytest.mark.parametrize("rest", [b"", b"\0", b"\x7f\xff\xff", b"\0\1c", b"\0\1c\x80\x80\x80\x80\x80\x80"])
def test_api_versions_of_an_unknown_version_is_read_far_enough_to_be_answered(rest: bytes) -> None:
    header = parse_request_header(memoryview(struct.pack(">hhi", 18, 99, 42) + rest))
    assert header[:3] == (18, 99, 42)


def test_api_versions_of_a_known_version_has_to_be_well_formed() -> None:
    with pytest.raises(FrameError):
        parse_request_header(memoryview(struct.pack(">hhi", 18, 3, 42)))


def test_an_unknown_api_key_is_read_with_the_header_that_is_not_flexible() -> None:
    frame = struct.pack(">hhih", 999, 0, 5, 1) + b"c\0\0"
    assert parse_request_header(memoryview(frame)) == RequestHeader(999, 0, 5, "c", 11)


@pytest.mark.parametrize("version", versions_of(messages.ProduceRequest))
def test_produced_records_are_slices_of_the_frame(version: int) -> None:
    topic = StockProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData
    request = StockProduceRequest(
        version=version,
        acks=-1,
        timeout_ms=1,
        topic_data=[
            topic(
                version=version,
                name="t",
                partition_data=[
                    partition(version=version, index=0, records=b"batch of zero"),
                    partition(version=version, index=1, records=None),
                    partition(version=version, index=2, records=b""),
                ],
            )
        ],
    )
    frame = memoryview(bytearray(b"head" + request.encode()))
    partitions = decode_request(messages.ProduceRequest, version, frame, 4).topic_data[0].partition_data
    records = partitions[0].records
    assert [partitions[1].records, bytes(partitions[2].records)] == [None, b""]
    assert (bytes(records), records.obj) == (b"batch of zero", frame.obj)


def fetch_response(response_class: Any, version: int, records: list[Any]) -> Any:
    topic = response_class.FetchableTopicResponse
    partitions = [
        topic.PartitionData(version=version, partition_index=index, high_watermark=index, records=value)
        for index, value in enumerate(records)
    ]
    responses = [topic(version=version, topic="t", partitions=partitions[:2]), topic(version=version, topic="u")]
    responses[1].partitions = partitions[2:]
    return response_class(version=version, session_id=3, responses=responses)


@pytest.mark.parametrize("version", versions_of(messages.FetchResponse))
def test_a_spliced_fetch_response_has_the_bytes_of_the_stock_encoder(version: int) -> None:
    large = memoryview(bytes(range(256)) * 1000)
    ours = fetch_response(messages.FetchResponse, version, [None, large, [large[:300], large[300:301]], b"", (), large])
    stock = fetch_response(StockFetchResponse, version, [None, large, large[:301], b"", b"", large])
    stock.with_header(77)
    pieces = encode_response(ours, version, 77)
    assert b"".join(pieces) == bytes(stock.encode(header=True, framed=True))
    assert sum(piece is large for piece in pieces) == 2
    assert bytes(ours.encode(version=version)) == bytes(stock.encode())


@pytest.mark.parametrize("api", messages.REQUESTS.values(), ids=lambda api: api.response.__name__)
def test_a_response_frame_has_its_size_the_correlation_id_and_the_header_of_its_version(
    api: messages.MessagePair,
) -> None:
    for version in versions_of(api.response):
        response: Any = api.response(version=version)
        response.with_header(correlation_id=2**31 - 1)
        expected = bytes(response.encode(header=True, framed=True))
        assert b"".join(encode_response(api.response(version=version), version, 2**31 - 1)) == expected


def test_the_answer_to_api_versions_never_has_a_flexible_header() -> None:
    frame = b"".join(encode_response(messages.ApiVersionsResponse(error_code=35), 3, 9))
    assert struct.unpack(">iih", frame[:10]) == (len(frame) - 4, 9, 35)
