"""Every message in every version with random content: round trips, the guard, and the bytes against kio's codec."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.schemas import BaseField

from diskless_core.broker.apis import CLIENT_APIS, INTER_BROKER_APIS
from diskless_core.protocol import messages
from diskless_core.protocol.framing import FrameError, check_structure, decode_request, parse_request_header
from diskless_core.protocol.messages import consumer_group
from diskless_core.protocol.record_frames import RecordFormatError, decode_record, encode_record
from tests.support.kio_codec import kio_bytes, kio_class, kio_read

FIRST_OWN_TAG = 10000
INT_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
SERVED = [messages.REQUESTS[api_key] for api_key in INTER_BROKER_APIS]
MESSAGES = [message for api in SERVED for message in api]
RECORDS = list(messages.METADATA_RECORDS.values())
GROUP_RECORDS = [
    messages.OffsetCommitKey,
    messages.OffsetCommitValue,
    messages.GroupMetadataKey,
    messages.GroupMetadataValue,
    *(one for name, one in vars(consumer_group).items() if name.endswith(("Key", "Value"))),
]


seeds = st.integers(0, 2**64 - 1).map(random.Random)


def versions_of(message_class: Any) -> range:
    first, last = message_class.valid_versions
    return range(first, last + 1)


def each_version(classes: list[Any], unless: Callable[[Any, int], bool] = lambda *_: False) -> pytest.MarkDecorator:
    cases = [
        pytest.param(message_class, version, id=f"{message_class.__name__}-v{version}")
        for message_class in classes
        for version in versions_of(message_class)
        if not unless(message_class, version)
    ]
    return pytest.mark.parametrize(("message_class", "version"), cases)


def covers(versions: str | None, version: int) -> bool:
    bounds = BaseField.parse_versions(versions)
    return bounds is not None and bounds[0] <= version <= bounds[1]


def present(fields: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    return [field for field in fields if covers(field["versions"], version)]


def random_value(field: dict[str, Any], version: int, rnd: random.Random) -> Any:
    kind = field["type"]
    if covers(field.get("nullableVersions"), version) and rnd.random() < 0.3:
        return None
    if kind.startswith("[]"):
        element = {key: value for key, value in field.items() if key != "nullableVersions"} | {"type": kind[2:]}
        return [
            random_value(element, version, rnd) for _ in range(rnd.choice((0, 1, 2, 130 if rnd.random() < 0.02 else 3)))
        ]
    if "fields" in field:
        return random_fields(field["fields"], version, rnd)
    return random_scalar(field, rnd)


def random_scalar(field: dict[str, Any], rnd: random.Random) -> Any:
    kind, name = field["type"], field["name"]
    if name.endswith("ErrorCode"):
        return rnd.randrange(-1, 100)
    if re.search(r"Time(Ms)?$|^Timeout|(Lifetime|Period)Ms$|^(Issue|Expiry|Max)Timestamp(Ms)?$", name):
        return rnd.randrange(2**30)
    if kind in INT_BITS:
        return rnd.randrange(-(2 ** INT_BITS[kind]), 2 ** INT_BITS[kind])
    match kind:
        case "uint16":
            return rnd.randrange(2**16)
        case "bool":
            return rnd.random() < 0.5
        case "float64":
            return rnd.uniform(-(2.0**63), 2.0**63)
        case "uuid":
            return uuid.UUID(int=rnd.getrandbits(128) or 1)
        case "string":
            return "".join(rnd.choice("aä日🙂\0") for _ in range(rnd.choice((0, 1, 7, 130))))
        case "bitfield":
            return {bit for bit in range(20) if rnd.random() < 0.3}
        case "bytes" | "records" | "spliced_records":
            return rnd.randbytes(rnd.choice((0, 1, 7, 130, 20000 if rnd.random() < 0.05 else 300)))
    raise AssertionError(kind)


def random_fields(fields: list[dict[str, Any]], version: int, rnd: random.Random) -> dict[str, Any]:
    return {
        BaseField.underscore_name(field["name"]): random_value(field, version, rnd)
        for field in present(fields, version)
        if not covers(field.get("taggedVersions"), version) or rnd.random() < 0.5
    }


def instance(container: Any, fields: list[dict[str, Any]], version: int, values: dict[str, Any]) -> Any:
    """A message of kafka-python's classes from nested dictionaries."""
    converted = dict(values)
    for field in present(fields, version):
        name = BaseField.underscore_name(field["name"])
        value = values.get(name)
        if "fields" not in field or value is None:
            continue
        inner = getattr(container, field["type"].removeprefix("[]"))
        if isinstance(value, list):
            converted[name] = [instance(inner, field["fields"], version, item) for item in value]
        else:
            converted[name] = instance(inner, field["fields"], version, value)
    return container(version=version, **converted)


def values_of(message: Any, like: dict[str, Any]) -> dict[str, Any]:
    """The content of a decoded message, in the shape of the dictionaries that it was made from."""
    return {name: _plain(getattr(message, name), value) for name, value in like.items()}


def _plain(value: Any, like: Any) -> Any:
    if isinstance(like, dict):
        return values_of(value, like)
    if isinstance(like, list):
        assert len(value) == len(like)
        return [_plain(item, item_like) for item, item_like in zip(value, like, strict=True)]
    return bytes(value) if isinstance(value, memoryview) else value


def of_kafka(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fields that Apache Kafka has too: without the tagged ones that a message has here beside them."""
    return [
        {**field, "fields": of_kafka(field["fields"])} if "fields" in field else field
        for field in fields
        if field.get("tag", 0) < FIRST_OWN_TAG
    ]


def random_message(
    message_class: Any, version: int, rnd: random.Random, *, stock: bool = False
) -> tuple[Any, dict[str, Any]]:
    """A message with random content, and its content; `stock` fills only what Apache Kafka's own message has."""
    fields = of_kafka(message_class.json["fields"]) if stock else message_class.json["fields"]
    values = random_fields(fields, version, rnd)
    return instance(message_class, fields, version, values), values


def encode(message: Any, version: int) -> bytes:
    if isinstance(message, messages.ApiMessage):
        return bytes(message.encode(version=version))
    return bytes(message.encode_body(version))


PACKED = {messages.DisklessCommitFileRequest}
"""Requests that do not go through the generic codec; `test_protocol_commit_file` has theirs."""

GENERIC_REQUESTS = [api.request for api in SERVED if api.request not in PACKED]


@each_version(GENERIC_REQUESTS)
@settings(max_examples=8, deadline=None)
@given(rnd=seeds)
def test_every_request_passes_the_guard_and_decodes_to_what_was_encoded(
    message_class: Any, version: int, rnd: random.Random
) -> None:
    message, values = random_message(message_class, version, rnd)
    frame = memoryview(b"header" + encode(message, version))
    assert values_of(decode_request(message_class, version, frame, 6), values) == values
    with_more = memoryview(bytes(frame) + b"\1" * 7)
    assert values_of(decode_request(message_class, version, with_more, 6), values) == values


@each_version([api.response for api in SERVED])
@settings(max_examples=5, deadline=None)
@given(rnd=seeds)
def test_every_response_decodes_to_what_was_encoded(message_class: Any, version: int, rnd: random.Random) -> None:
    message, values = random_message(message_class, version, rnd)
    if message_class is messages.ApiVersionsResponse:
        message.error_code = values["error_code"] = 0  # after an error, clients read version 0
    frame = memoryview(encode(message, version))
    assert check_structure(message_class, version, frame, 0) == len(frame)
    assert values_of(message_class.decode(frame, version=version), values) == values


@each_version(RECORDS)
@settings(max_examples=10, deadline=None)
@given(rnd=seeds)
def test_every_metadata_record_decodes_to_what_was_encoded(
    message_class: Any, version: int, rnd: random.Random
) -> None:
    message, values = random_message(message_class, version, rnd)
    framed = encode_record(message, version)
    assert values_of(decode_record(framed), values) == values
    for damaged in (framed + b"\0", framed[:-1]):
        with pytest.raises(RecordFormatError):
            decode_record(damaged)


@each_version(GROUP_RECORDS)
@settings(max_examples=10, deadline=None)
@given(rnd=seeds)
def test_every_group_record_decodes_to_what_was_encoded(message_class: Any, version: int, rnd: random.Random) -> None:
    message, values = random_message(message_class, version, rnd)
    body = memoryview(encode(message, version))
    assert check_structure(message_class, version, body, 0) == len(body)
    assert values_of(message_class.decode_body(body, version)[0], values) == values


def is_of_a_kip(message_class: Any, version: int) -> bool:
    """Whether Apache Kafka has no such version."""
    api = CLIENT_APIS[message_class.API_KEY]
    return api.unstable_newest is not None and version > api.newest


@each_version([message for api_key in CLIENT_APIS for message in messages.KAFKA_APIS[api_key]], unless=is_of_a_kip)
@settings(max_examples=5, deadline=None)
@given(rnd=seeds)
def test_kio_reads_our_bytes_and_writes_the_same(message_class: Any, version: int, rnd: random.Random) -> None:
    message, _ = random_message(message_class, version, rnd, stock=True)
    encoded = encode(message, version)
    parsed, size = kio_read(kio_class(message_class, version), encoded)
    assert size == len(encoded)
    assert kio_bytes(parsed) == encoded


@each_version(MESSAGES)
@settings(max_examples=3, deadline=None)
@given(rnd=seeds)
def test_no_prefix_of_a_message_passes_the_guard(message_class: Any, version: int, rnd: random.Random) -> None:
    encoded = encode(random_message(message_class, version, rnd)[0], version)
    for end in {rnd.randrange(len(encoded)) for _ in range(5)} if encoded else ():
        with pytest.raises(FrameError):
            check_structure(message_class, version, memoryview(encoded)[:end], 0)


def mutated(data: bytes, rnd: random.Random) -> bytes:
    """`data` after a few of the accidents that a fuzzer thinks of."""
    damaged = bytearray(data)
    for _ in range(rnd.randrange(1, 4)):
        at = rnd.randrange(len(damaged) + 1)
        match rnd.randrange(5):
            case 0:
                damaged[at : at + 1] = rnd.randbytes(1)
            case 1:
                damaged[at:at] = rnd.choice((b"\xff" * 5, b"\x80" * 40, b"\x7f\xff\xff\xff", b"\0\0"))
            case 2:
                del damaged[at : at + rnd.randrange(9)]
            case 3:
                damaged[at : at + 4] = rnd.choice((-1, -2, 0, 2**31 - 1, -(2**31))).to_bytes(4, "big", signed=True)
            case 4:
                damaged[at:at] = damaged[at : at + rnd.randrange(60)]
    return bytes(damaged)


@each_version(GENERIC_REQUESTS)
@settings(max_examples=12, deadline=2000)
@given(rnd=seeds)
def test_a_damaged_request_is_a_frame_error_or_a_message(message_class: Any, version: int, rnd: random.Random) -> None:
    damaged = memoryview(mutated(encode(random_message(message_class, version, rnd)[0], version), rnd))
    try:
        request = decode_request(message_class, version, damaged, 0)
    except FrameError:
        return
    assert type(request) is message_class


@each_version(RECORDS)
@settings(max_examples=100, deadline=2000)
@given(rnd=seeds)
def test_a_damaged_record_is_a_format_error_or_a_record(message_class: Any, version: int, rnd: random.Random) -> None:
    damaged = mutated(encode_record(random_message(message_class, version, rnd)[0], version), rnd)
    try:
        record = decode_record(damaged)
    except RecordFormatError:
        return
    assert type(record) in RECORDS


@settings(max_examples=500, deadline=2000)
@given(
    api=st.sampled_from([(api.request, v) for api in SERVED for v in versions_of(api.request)]),
    frame=st.binary(max_size=200),
)
def test_random_bytes_are_a_frame_error_or_a_message(api: tuple[Any, int], frame: bytes) -> None:
    request_class, version = api
    try:
        request = decode_request(request_class, version, memoryview(frame), 0)
    except FrameError:
        return
    assert type(request) is request_class


@settings(max_examples=300, deadline=2000)
@given(frame=st.binary(max_size=60))
def test_a_header_of_random_bytes_is_a_frame_error_or_a_header_within_the_frame(frame: bytes) -> None:
    try:
        header = parse_request_header(memoryview(frame))
    except FrameError:
        return
    assert header.body <= len(frame)
