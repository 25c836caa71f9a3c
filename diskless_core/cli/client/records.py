"""How records are written as lines and read from lines. Pure: no client, no files."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from diskless_core.cli import text

NAMED_FORMATS = ("text", "json", "base64", "hex")
"""The formats that `produce` reads and `consume` writes; `consume` takes a format with %-directives too."""

DIRECTIVES: Mapping[str, str] = {
    "%t": "topic",
    "%p": "partition",
    "%o": "offset",
    "%k": "key",
    "%v": "value",
    "%s": "value",
    "%h": "headers",
    "%T": "timestamp in milliseconds since the epoch",
    "%D": "timestamp as ISO 8601",
    "%K": "key's length in bytes",
    "%S": "value's length in bytes",
    "%%": "%",
}
"""What a %-directive of a format stands for."""

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_TIMESTAMP_TYPES = {1: "create_time", 2: "log_append_time"}
_READ_FROM_JSON = ("key", "value", "headers", "partition", "timestamp")
_ONLY_WRITTEN_TO_JSON = ("topic", "offset", "timestamp_type")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_ESCAPE = re.compile(r"\\[ntr0\\]")
_PART_OF_FORMAT = re.compile(r"%.?|[^%]+", re.DOTALL)


class RecordError(ValueError):
    """A line is no record, or a format is none; the message says what is expected."""


class Message(Protocol):
    """A consumed record, as librdkafka's client gives it. The timestamp is its type and milliseconds."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to produce. None is Kafka's null; without a partition the key decides, without a timestamp the clock."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Reader: TypeAlias = Callable[[bytes], Record]
"""Makes a record of a line without its line end; raises `RecordError`."""

Writer: TypeAlias = Callable[[Message], bytes]
"""Makes a line, with its line end, of a record."""


def reader(name: str, key_separator: str | None) -> Reader:
    """The reader of one of `NAMED_FORMATS`; raises `RecordError` for an unknown name."""
    decode = _DECODERS.get(name)
    if name == "json":
        return record_of_json
    if decode is None:
        raise RecordError(f"there is no format {name!r}: give one of {', '.join(NAMED_FORMATS)}")
    separator = unescaped(key_separator).encode() if key_separator else None

    def read(line: bytes) -> Record:
        if separator is None:
            return Record(value=decode(line))
        key, found, value = line.partition(separator)
        if not found:
            raise RecordError(f"there is no key separator {key_separator!r}")
        return Record(key=decode(key), value=decode(value))

    return read


def writer(name: str, key_separator: str | None) -> Writer:
    """The writer of one of `NAMED_FORMATS` or of a format with %-directives; raises `RecordError` for any other."""
    if "%" in name:
        return _writer_of_format(unescaped(name))
    encode = _ENCODERS.get(name)
    if name == "json":
        return lambda message: json.dumps(json_of_record(message), ensure_ascii=False).encode() + b"\n"
    if encode is None:
        raise RecordError(
            f"there is no format {name!r}: give one of {', '.join(NAMED_FORMATS)}, or one such as '%o %k %v'"
        )
    if not key_separator:
        return lambda message: encode(message.value() or b"") + b"\n"
    separator = unescaped(key_separator).encode()
    return lambda message: encode(message.key() or b"") + separator + encode(message.value() or b"") + b"\n"


def json_of_record(message: Message) -> dict[str, Any]:
    """A record as `consume --json` writes it and `produce --format json` reads it.

    `key`, `value` and a header's `value` are text or null; bytes that are not UTF-8 are in `key_base64`,
    `value_base64`, as base64 instead.
    """
    timestamp_type, timestamp_ms = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms if timestamp_type in _TIMESTAMP_TYPES else None,
        "timestamp_type": _TIMESTAMP_TYPES.get(timestamp_type),
        "headers": [{"name": name, **_json_bytes("value", value)} for name, value in message.headers() or ()],
        **_json_bytes("key", message.key()),
        **_json_bytes("value", message.value()),
    }


def record_of_json(line: bytes) -> Record:
    """The record of a line of JSON. A value that is neither text nor null is kept as compact JSON."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise RecordError(f"the line is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RecordError('the line is not a JSON object: a record is such as {"key": "a", "value": "b"}')
    known = {*_READ_FROM_JSON, *_ONLY_WRITTEN_TO_JSON, "key_base64", "value_base64"}
    if unknown := sorted(fields.keys() - known):
        raise RecordError(
            f"a record has no field {unknown[0]!r}, but {', '.join(_READ_FROM_JSON)}; "
            "--format text takes lines of JSON as they are"
        )
    if not fields.keys() & {"value", "value_base64"}:
        raise RecordError("there is no value: give null for a tombstone")
    return Record(
        key=_bytes_of_json(fields, "key"),
        value=_bytes_of_json(fields, "value"),
        headers=_headers_of_json(fields.get("headers") or ()),
        partition=_number_of_json(fields, "partition"),
        timestamp_ms=_number_of_json(fields, "timestamp"),
    )


def unescaped(written: str) -> str:
    r"""A text whose `\t`, `\n`, `\r`, `\0` and `\\` stand for what they mean."""
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], written)


def _writer_of_format(written: str) -> Writer:
    parts: list[Callable[[Message], bytes]] = []
    for part in _PART_OF_FORMAT.findall(written):
        if not part.startswith("%"):
            parts.append(_literal(part))
        elif part in _DIRECTIVE_WRITERS:
            parts.append(_DIRECTIVE_WRITERS[part])
        else:
            raise RecordError(f"a format has no directive {part!r}, but {', '.join(DIRECTIVES)}")
    return lambda message: b"".join([part(message) for part in parts]) + b"\n"


def _literal(part: str) -> Callable[[Message], bytes]:
    encoded = part.encode()
    return lambda _: encoded


_DIRECTIVE_WRITERS: Mapping[str, Callable[[Message], bytes]] = {
    "%t": lambda message: (message.topic() or "").encode(),
    "%p": lambda message: b"%d" % (message.partition() or 0),
    "%o": lambda message: b"%d" % (message.offset() or 0),
    "%k": lambda message: message.key() or b"",
    "%v": lambda message: message.value() or b"",
    "%s": lambda message: message.value() or b"",
    "%h": lambda message: b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers() or ()),
    "%T": lambda message: b"%d" % message.timestamp()[1],
    "%D": lambda message: text.iso_time(message.timestamp()[1]).encode(),
    "%K": lambda message: b"%d" % len(message.key() or b""),
    "%S": lambda message: b"%d" % len(message.value() or b""),
    "%%": lambda _: b"%",
}


def _json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _bytes_of_json(fields: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in fields:
        if name in fields:
            raise RecordError(f"there are both {name} and {name}_base64")
        encoded = fields[f"{name}_base64"]
        if not isinstance(encoded, str):
            raise RecordError(f"{name}_base64 is not text")
        return _from_base64(encoded.encode())
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        # a lone surrogate, which JSON can escape, has no UTF-8
        return value.encode(errors="replace")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _headers_of_json(headers: Any) -> Headers:
    if not isinstance(headers, Sequence) or not all(
        isinstance(header, dict) and isinstance(header.get("name"), str) for header in headers
    ):
        raise RecordError('headers are not a list of objects such as {"name": "a", "value": "b"}')
    return tuple((header["name"], _bytes_of_json(header, "value")) for header in headers)


def _number_of_json(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise RecordError(f"{name} is not a number from 0 on")
    return value


def _from_base64(encoded: bytes) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise RecordError(f"not base64: {error}") from None


def _from_hex(encoded: bytes) -> bytes:
    try:
        return binascii.unhexlify(encoded)
    except binascii.Error as error:
        raise RecordError(f"not hexadecimal digits: {error}") from None


_DECODERS: Mapping[str, Callable[[bytes], bytes]] = {"text": bytes, "base64": _from_base64, "hex": _from_hex}
_ENCODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "text": bytes,
    "base64": base64.b64encode,
    "hex": binascii.hexlify,
}
