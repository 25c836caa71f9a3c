"""The one module that knows kafka-python's codec from inside: typed bases of messages, and record bytes without copies.

kafka-python has no type information, so type checkers see the declarations here and programs run its classes. A field
of the type `RECORDS_TYPE` decodes to a slice of the frame; encoded into a `SpliceBuffer` its value is put between the
encoded pieces and never copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, dataclass_transform

from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

__all__ = [
    "RECORDS_TYPE",
    "ApiData",
    "ApiMessage",
    "ApiRequest",
    "CompiledRecord",
    "DataContainer",
    "Piece",
    "Records",
    "RecordsField",
    "ResponseT_co",
    "SpliceBuffer",
    "SplicedMessage",
    "patch_records",
    "write_records",
]

RECORDS_TYPE = "spliced_records"
"""Name of the field type, for schemas patched from `records`."""

Piece = bytes | bytearray | memoryview

Records = Piece | Sequence[Piece] | None
"""What a field of the type `RECORDS_TYPE` is encoded from."""

ResponseT_co = TypeVar("ResponseT_co", bound="ApiMessage", covariant=True)

if TYPE_CHECKING:

    @dataclass_transform(kw_only_default=True, eq_default=False)
    class _Schema:
        """What messages and records have in common. Fields are attributes in snake case; structs are classes within.

        A field that the version lacks, or that nobody has set, has its default.
        """

        json: ClassVar[dict[str, Any]]
        valid_versions: ClassVar[tuple[int, int]]
        _struct: ClassVar[Any]

        @classmethod
        def flexible_version_q(cls, version: int) -> bool: ...
        def to_dict(self, meta: bool | str = False, json: bool = True) -> dict[str, Any]: ...

    class DataContainer(_Schema):
        """A struct within a message or record."""

        version: int | None = None

    class ApiMessage(_Schema):
        """A request or a response."""

        API_KEY: ClassVar[int]

        version: int | None = None

        def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> bytearray: ...
        @classmethod
        def decode(cls, data: Piece, version: int | None = None) -> Self: ...

    class ApiRequest(ApiMessage, Generic[ResponseT_co]):
        """A request with the class of its response, for type checkers."""

    class ApiData(_Schema):
        """A record."""

        version: int | None = None

    class BaseField:
        """A field of a schema."""

        def __init__(self, json: dict[str, Any]) -> None: ...

    class EncodeBuffer:
        """A growing buffer, written at `pos` after `ensure`."""

        buf: bytearray
        pos: int

        def __init__(self, size: int = 65536) -> None: ...
        def ensure(self, needed: int) -> None: ...

    _RecordBase = _Schema
else:
    from kafka.protocol.api_data import ApiData
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.data_container import DataContainer
    from kafka.protocol.schemas import BaseField
    from kafka.protocol.schemas.fields.codecs.encode_buffer import EncodeBuffer

    ApiRequest = ApiMessage
    _RecordBase = object


class SpliceBuffer(EncodeBuffer):
    """An encode buffer that remembers where foreign bytes belong instead of taking them in."""

    __slots__ = ("splices",)

    def __init__(self, size: int = 1024) -> None:
        super().__init__(size)
        self.splices: list[tuple[int, Iterable[Piece]]] = []

    def pieces(self) -> list[Piece]:
        """All bytes in order: slices of this buffer with the foreign ones between them. The buffer is then in use."""
        encoded = memoryview(self.buf)[: self.pos]
        pieces: list[Piece] = []
        start = 0
        for at, parts in self.splices:
            pieces.append(encoded[start:at])
            pieces.extend(part for part in parts if len(part))
            start = at
        if start < self.pos:
            pieces.append(encoded[start:])
        return pieces


def write_records(out: EncodeBuffer, pos: int, parts: Sequence[Piece]) -> int:
    """Put `parts` at `pos` of `out`: remembered in a `SpliceBuffer`, else copied. Returns where to go on."""
    if isinstance(out, SpliceBuffer):
        out.splices.append((pos, parts))
        return pos
    for part in parts:
        out.pos = pos
        out.ensure(len(part))
        out.buf[pos : pos + len(part)] = part
        pos += len(part)
    return pos


class RecordsField(BaseField):
    """Record batches in a message: None, one buffer, or a list or tuple of buffers that belong one behind the other.

    Buffers are `bytes`, `bytearray` or memoryviews of bytes. Registers itself with kafka-python on definition.
    """

    default: ClassVar[None] = None

    @classmethod
    def parse_json(cls, json: dict[str, Any]) -> RecordsField | None:
        return cls(json) if json["type"] == RECORDS_TYPE else None

    def emit_decode_from(self, ctx: Any, var_name: str, indent: str, compact: bool = False, **_context: Any) -> None:
        length = ctx.next_var("records_bytes")
        if compact:
            UnsignedVarInt32.emit_decode_from(ctx, length, indent)
            ctx.emit(indent, f"{length} -= 1")
        else:
            ctx.emit(indent, f"{length} = unpack_from('>i', data, pos)[0]")
            ctx.emit(indent, "pos += 4")
        ctx.emit(indent, f"if {length} < 0:")
        ctx.emit(indent, f"    {var_name} = None")
        ctx.emit(indent, "else:")
        ctx.emit(indent, f"    {var_name} = data[pos:pos + {length}]")
        ctx.emit(indent, f"    pos += {length}")

    def emit_encode_into(self, ctx: Any, val_expr: str, indent: str, compact: bool = False, **_context: Any) -> None:
        ctx.globs["_write_records"] = write_records
        parts, length = ctx.next_var("parts"), ctx.next_var("length")
        ctx.emit(indent, f"{parts} = {val_expr}")
        ctx.emit(indent, f"if {parts} is None: {length} = -1")
        ctx.emit(indent, "else:")
        ctx.emit(indent, f"    if not isinstance({parts}, (list, tuple)): {parts} = ({parts},)")
        ctx.emit(indent, f"    {length} = sum(map(len, {parts}))")
        if compact:
            ctx.emit(indent, f"{length} += 1")
            UnsignedVarInt32.emit_encode_into(ctx, length, indent)
        else:
            ctx.emit_reserve(indent, 4)
            ctx.emit(indent, f"pack_into('>i', buf, pos, {length})")
            ctx.emit(indent, "pos += 4")
        ctx.emit(indent, f"if {parts} is not None:")
        ctx.emit(indent, f"    pos = _write_records(out, pos, {parts})")
        ctx.emit(indent, "    buf = out.buf")
        ctx.emit(indent, "    _cap = len(buf)")

    def to_json(self, value: Any) -> Any:
        """How the value shows in `to_dict`: the number of its bytes."""
        if value is None:
            return None
        return sum(map(len, value)) if isinstance(value, list | tuple) else len(value)


def patch_records(json: dict[str, Any]) -> dict[str, Any]:
    """Give each field of the type `records` in a schema the type `RECORDS_TYPE`, in place."""
    for field in json.get("fields", ()):
        if field["type"] == "records":
            field["type"] = RECORDS_TYPE
        patch_records(field)
    return json


class SplicedMessage(_RecordBase):
    """Mixed into a message with records: they are sent from where they are."""

    __slots__ = ()

    def encode_spliced(self, version: int) -> list[Piece]:
        """The encoded body in pieces; the buffers given as records are among them as they are."""
        flexible = self.flexible_version_q(version)
        out = SpliceBuffer()
        self._struct.compiled_encode_into(version, compact=flexible, tagged=flexible)(self, out)
        return out.pieces()


class CompiledRecord(_RecordBase):
    """Mixed into a record: kafka-python's compiled codec, which its own `ApiData` leaves to requests and responses."""

    __slots__ = ()

    def encode_body(self, version: int) -> bytearray:
        """The record without any version or frame before it."""
        flexible = self.flexible_version_q(version)
        out = EncodeBuffer(256)
        self._struct.compiled_encode_into(version, compact=flexible, tagged=flexible)(self, out)
        return out.buf[: out.pos]

    @classmethod
    def decode_body(cls, body: memoryview, version: int) -> tuple[Self, int]:
        """The record at the start of `body` and how many bytes it takes. Structure and bounds are not checked."""
        flexible = cls.flexible_version_q(version)
        decode = cls._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=cls)
        message, size = decode(body, 0)
        return message, size
