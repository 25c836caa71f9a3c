"""The guard before kafka-python's decoder: a check of a message's structure, compiled from its JSON schema.

The decoder trusts what it reads: it follows any varint, takes a truncated string for a whole one and copies the rest
of the frame at each tagged section that is not empty. The check walks the same fields, decodes none, skips records in
one step, and bounds the work that decoding will take.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from diskless_core.protocol.codec import RECORDS_TYPE, ApiData, ApiMessage, CompiledRecord
from diskless_core.protocol.varint import VarintError, read_uvarint

MAX_ELEMENTS = 1_000_000
"""Elements of arrays and tagged fields that one message may have."""

MAX_TAGGED_COPY_BYTES = 64 * 1024 * 1024
"""Bytes, beyond the frame's own size, that decoding may copy for the sake of tagged sections."""

_MAX_INT32 = 2**31 - 1
_FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "bitfield": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
_BYTES_TYPES = frozenset({"bytes", "records", RECORDS_TYPE})

Work = list[int]
"""What a message may still cost: elements, bytes copied."""

Check = Callable[[memoryview, int, int, Work], int]
"""Check one piece of a frame: (frame, position, end, work) to the position behind it, which may lie beyond the end."""

MessageClass = type[ApiMessage] | type[ApiData] | type[CompiledRecord]


class FrameError(Exception):
    """A frame is malformed. Its connection can't be trusted to be in step any more."""


def check_structure(message_class: MessageClass, version: int, frame: memoryview, pos: int) -> int:
    """Check that `frame[pos:]` begins with a message, every length, count and tagged section of it within bounds.

    Returns the position behind the message.

    What passes decodes without an error but for strings that are not UTF-8, in time linear to its size.

    Raises:
        FrameError: it is not, it has more than `MAX_ELEMENTS`, or the schema lacks the version.
    """
    check = _check_of(message_class, version)
    end = len(frame)
    try:
        stop = check(frame, pos, end, [MAX_ELEMENTS, MAX_TAGGED_COPY_BYTES + end])
    except (IndexError, struct.error):
        stop = end + 1
    except VarintError as error:
        raise FrameError(f"{message_class.__name__} v{version} is malformed: {error}") from error
    if stop > end:
        raise FrameError(f"{message_class.__name__} v{version} is truncated")
    return stop


def check_tagged_section(data: memoryview, pos: int, end: int, work: Work, known: Mapping[int, Check]) -> int:
    """Check the tagged section at `pos` and return the position behind it.

    Unknown tags are skipped, known ones have to fill their size exactly.

    Raises:
        FrameError, VarintError, IndexError: it is malformed or ends beyond `end`.
    """
    work[1] -= len(data) - pos
    count, pos = read_uvarint(data, pos)
    work[0] -= count
    if work[0] < 0 or work[1] < 0 or 2 * count > end - pos:
        raise FrameError("too many tagged fields")
    for _ in range(count):
        tag, pos = read_uvarint(data, pos)
        size, pos = read_uvarint(data, pos)
        stop = pos + size
        if stop > end:
            raise FrameError(f"tagged field {tag} of {size} bytes goes beyond the end")
        check = known.get(tag)
        if check is not None and check(data, pos, stop, work) != stop:
            raise FrameError(f"tagged field {tag} does not fill its {size} bytes")
        pos = stop
    return pos


_checks: dict[tuple[MessageClass, int], Check] = {}


def _check_of(message_class: MessageClass, version: int) -> Check:
    check = _checks.get((message_class, version))
    if check is None:
        schema = message_class.json
        if not _covers(schema["validVersions"], version):
            raise FrameError(f"{message_class.__name__} has no version {version}")
        compiler = _Compiler(version, flexible=_covers(schema["flexibleVersions"], version))
        check = _checks[message_class, version] = compiler.message(schema["fields"])
    return check


def _covers(versions: str | None, version: int) -> bool:
    if not versions or versions == "none":
        return False
    first, dash, last = versions.removesuffix("+").partition("-")
    upper = int(last) if dash else (_MAX_INT32 if versions.endswith("+") else int(first))
    return int(first) <= version <= upper


class _Compiler:
    """Writes the source of one message's check.

    Fields of a fixed size merely move `pos`. Moving it beyond the end is found by the next read or, at the latest, by
    whoever compares the result with the end.
    """

    def __init__(self, version: int, *, flexible: bool) -> None:
        self._version = version
        self._compact = flexible
        self._names: dict[str, Any] = {
            "FrameError": FrameError,
            "uvarint": read_uvarint,
            "tagged_section": check_tagged_section,
            "int16": struct.Struct(">h").unpack_from,
            "int32": struct.Struct(">i").unpack_from,
        }
        self._lines: list[str] = []
        self._variables = 0

    def message(self, fields: list[dict[str, Any]]) -> Check:
        return self._function(lambda: self._struct(fields, 1, in_tag=False))

    def _function(self, emit_body: Callable[[], None]) -> Check:
        outer, self._lines = self._lines, ["def check(data, pos, end, work):"]
        emit_body()
        self._emit(1, "return pos")
        source, self._lines = "\n".join(self._lines), outer
        scope = dict(self._names)
        exec(compile(source, "<check>", "exec"), scope)  # noqa: S102  the source is made from schemas we ship
        check: Check = scope["check"]
        return check

    def _emit(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _variable(self, prefix: str) -> str:
        self._variables += 1
        return f"{prefix}{self._variables}"

    def _struct(self, fields: list[dict[str, Any]], depth: int, *, in_tag: bool) -> None:
        present = [field for field in fields if _covers(field["versions"], self._version)]
        fixed = 0
        for field in present:
            if self._is_tagged(field):
                continue
            if field["type"] in _FIXED_BYTES:
                fixed += _FIXED_BYTES[field["type"]]
                continue
            self._advance(fixed, depth)
            fixed = 0
            self._field(field, depth, in_tag=in_tag)
        self._advance(fixed, depth)
        if self._compact:
            self._tagged_section([field for field in present if self._is_tagged(field)], depth, in_tag=in_tag)

    def _advance(self, size: int, depth: int) -> None:
        if size:
            self._emit(depth, f"pos += {size}")

    def _is_tagged(self, field: dict[str, Any]) -> bool:
        return "tag" in field and _covers(field.get("taggedVersions"), self._version)

    def _tagged_section(self, tagged: list[dict[str, Any]], depth: int, *, in_tag: bool) -> None:
        self._emit(depth, "if data[pos] == 0: pos += 1")
        if in_tag:
            self._emit(depth, "else: raise FrameError('the decoder takes no tags within a tagged field')")
            return
        known = self._variable("tags")
        self._names[known] = {field["tag"]: self._tag(field) for field in tagged}
        self._emit(depth, f"else: pos = tagged_section(data, pos, end, work, {known})")

    def _tag(self, field: dict[str, Any]) -> Check:
        return self._function(lambda: self._field(field, 1, in_tag=True))

    def _field(self, field: dict[str, Any], depth: int, *, in_tag: bool) -> None:
        kind = field["type"]
        if kind in _FIXED_BYTES:
            self._advance(_FIXED_BYTES[kind], depth)
        elif kind.startswith("[]"):
            self._array(field, depth, in_tag=in_tag)
        elif kind == "string" or kind in _BYTES_TYPES:
            self._emit(depth, f"pos += {self._length(field, depth)}")
        else:
            self._nested_struct(field, depth, in_tag=in_tag)

    def _nested_struct(self, field: dict[str, Any], depth: int, *, in_tag: bool) -> None:
        if self._is_nullable(field):
            presence = self._variable("presence")
            self._emit(depth, f"{presence} = data[pos]")
            self._emit(depth, "pos += 1")
            self._emit(depth, f"if {presence} == 1:")
            self._emit(depth + 1, "pass")
            self._struct(field["fields"], depth + 1, in_tag=in_tag)
            self._emit(depth, f"elif {presence} != 255: raise FrameError({_malformed(field)})")
        else:
            self._struct(field["fields"], depth, in_tag=in_tag)

    def _is_nullable(self, field: dict[str, Any]) -> bool:
        return _covers(field.get("nullableVersions"), self._version)

    def _length(self, field: dict[str, Any], depth: int) -> str:
        """Emit the reading of a length or count; null counts as 0 where it is allowed. Returns its variable."""
        length = self._variable("n")
        if self._compact:
            self._emit(depth, f"{length} = data[pos]")
            self._emit(depth, f"if {length} < 128: pos += 1")
            self._emit(depth, f"else: {length}, pos = uvarint(data, pos)")
            self._emit(depth, f"{length} -= 1")
        else:
            width = 2 if field["type"] == "string" else 4
            self._emit(depth, f"{length} = int{8 * width}(data, pos)[0]")
            self._emit(depth, f"pos += {width}")
        if self._is_nullable(field):
            self._emit(depth, f"if {length} < 0:")
            self._emit(depth + 1, f"if {length} != -1: raise FrameError({_malformed(field)})")
            self._emit(depth + 1, f"{length} = 0")
        else:
            self._emit(depth, f"if {length} < 0: raise FrameError({_malformed(field)})")
        return length

    def _array(self, field: dict[str, Any], depth: int, *, in_tag: bool) -> None:
        element = {key: value for key, value in field.items() if key != "nullableVersions"} | {
            "type": field["type"][2:]
        }
        smallest = self._smallest(element)
        count = self._length(field, depth)
        self._emit(depth, f"work[0] -= {count}")
        self._emit(depth, f"if {count} * {smallest} > end - pos or work[0] < 0: raise FrameError({_malformed(field)})")
        if element["type"] in _FIXED_BYTES:
            self._emit(depth, f"pos += {count} * {smallest}")
        else:
            self._emit(depth, f"for _ in range({count}):")
            self._field(element, depth + 1, in_tag=in_tag)

    def _smallest(self, field: dict[str, Any]) -> int:
        """The least number of bytes that a field, or an element like it, takes; 1 for one that can take none."""
        kind = field["type"]
        if kind in _FIXED_BYTES:
            return _FIXED_BYTES[kind]
        if kind == "string":
            return 1 if self._compact else 2
        if kind in _BYTES_TYPES or kind.startswith("[]"):
            return 1 if self._compact else 4
        if self._is_nullable(field):
            return 1
        inner = (f for f in field["fields"] if _covers(f["versions"], self._version) and not self._is_tagged(f))
        return max(1, sum(map(self._smallest, inner)) + self._compact)


def _malformed(field: dict[str, Any]) -> str:
    return repr(f"{field['name']} is malformed")
