"""The types of messages and records, written from their schemas: a `.pyi` beside each module of `protocol.messages`.

kafka-python makes its classes from JSON at run time. A type checker reads the stubs instead of the modules, so these
hold nothing but declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from diskless_core.protocol.codec import RECORDS_TYPE, ApiData, ApiMessage

_PACKAGE = "diskless_core.protocol.messages"
_MODULES = (
    "administration",
    "consumer_group",
    "diskless",
    "kafka",
    "membership",
    "records",
    "remote_log",
    "remote_log.snapshots",
    "share_group",
    "streams_group",
)

_SCHEMAS = (ApiMessage, ApiData)

_HEAD = """# Generated from the schemas by `make docs`; do not edit.

import uuid
from collections.abc import Collection, Mapping, Sequence

from diskless_core.protocol.codec import (
    ApiData, ApiMessage, ApiRequest, CompiledRecord, DataContainer, Records, SplicedMessage
)
"""

_TYPES = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "records": "bytes",
    "string": "str",
    "uuid": "uuid.UUID | None",
    "bitfield": "Collection[int] | None",
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), "int"),
}
"""By the types of schemas. The zero uuid decodes to None."""

_RECORDS = {"request": "memoryview | None", "response": "Records"}
"""A broker decodes requests and encodes responses."""

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")

Field = Mapping[str, Any]
"""A field as schemas describe it."""


def stubs() -> Mapping[Path, Callable[[], str]]:
    """The stubs by their paths, each with what renders it."""
    modules = [import_module(f"{_PACKAGE}.{name}") for name in _MODULES]
    return {_path(module): partial(render, module) for module in modules}


def _path(module: ModuleType) -> Path:
    return Path(str(module.__file__)).with_suffix(".pyi")


def render(module: ModuleType) -> str:
    """The stub of a module that holds messages, records, and annotated names."""
    classes = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, _SCHEMAS) and name == value.__name__ and value not in _SCHEMAS
    ]
    lines = [_HEAD]
    for message in sorted(classes, key=lambda message: message.__name__):
        bases = ", ".join(_base(module, message, base.__name__) for base in message.__bases__)
        lines += _class(message.__name__, bases, message.json["fields"], message.json["type"], indent="")
    lines += [f"{name}: {annotation}" for name, annotation in vars(module).get("__annotations__", {}).items()]
    return "\n".join(lines) + "\n"


def _base(module: ModuleType, message: type, base: str) -> str:
    response = message.__name__.removesuffix("Request") + "Response"
    return f"ApiRequest[{response}]" if base == "ApiMessage" and hasattr(module, response) else base


def _class(name: str, bases: str, fields: Sequence[Field], kind: str, indent: str) -> Iterator[str]:
    yield f"{indent}class {name}({bases}):"
    inner = indent + "    "
    structs = {_element(field): field["fields"] for field in fields if "fields" in field}
    for struct, its_fields in structs.items():
        yield from _class(struct, "DataContainer", its_fields, kind, inner)
    for field in fields:
        yield f"{inner}{_CAPITAL.sub('_', field['name']).lower()}: {_type(field, kind)} = ..."
    if not fields:
        yield f"{inner}pass"
    yield ""


def _element(field: Field) -> str:
    element: str = field["type"].removeprefix("[]")
    return element


def _type(field: Field, kind: str) -> str:
    element = _element(field)
    of = element if "fields" in field else _RECORDS[kind] if element == RECORDS_TYPE else _TYPES[element]
    if field["type"].startswith("[]"):
        of = f"Sequence[{of}]"
    is_left_out = "fields" in field and "tag" in field and not field["type"].startswith("[]")
    can_be_none = "nullableVersions" in field or field.get("default") == "null" or is_left_out
    return f"{of} | None" if can_be_none and not of.endswith(("| None", "Records")) else of
