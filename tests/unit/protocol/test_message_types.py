"""The generated types of messages are those of the schemas, and true of what kafka-python makes of a message."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diskless_core.cli import message_stubs
from diskless_core.protocol import messages

STUBS = message_stubs.stubs()
CLASSES = [message for pair in messages.REQUESTS.values() for message in pair]


def types_of(node: ast.ClassDef, name: str) -> Iterator[tuple[str, str, str]]:
    """The fields of a class and of its structs: (path of the class, field, type)."""
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from types_of(child, f"{name}.{child.name}")
        elif isinstance(child, ast.AnnAssign):
            yield name, ast.unparse(child.target), ast.unparse(child.annotation)


TYPES = {
    (path, field): kind
    for render in STUBS.values()
    for node in ast.parse(render()).body
    if isinstance(node, ast.ClassDef)
    for path, field, kind in types_of(node, node.name)
}


def structs_of(container: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, container
    for field in container._struct.fields.values():
        if field.is_struct() or field.is_struct_array():
            yield from structs_of(getattr(container, field.type_str), f"{name}.{field.type_str}")


@pytest.mark.parametrize("path", STUBS, ids=lambda path: "/".join(path.parts[-2:]))
def test_the_types_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == STUBS[path](), "run `make docs`"


@pytest.mark.parametrize("message", CLASSES, ids=lambda message: message.__name__)
def test_a_field_that_is_absent_is_none_only_where_its_type_says_so(message: Any) -> None:
    for path, container in structs_of(message, message.__name__):
        absent = container()
        for name, field in container._struct.fields.items():
            kind = TYPES[path, name]
            if field.is_struct() and "None" not in kind:
                continue  # it has no default: who reads it where it is absent gets an error
            if getattr(absent, name) is None:
                assert "None" in kind or kind == "Records", (path, name, kind)
