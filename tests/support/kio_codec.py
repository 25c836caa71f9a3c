"""kio, an independent codec of Kafka's messages: its class for a message of ours, and how it reads and writes bytes."""

from __future__ import annotations

import importlib
import io
import re
from typing import Any

from kio.serial import entity_reader, entity_writer


def kio_class(message_class: Any, version: int) -> Any:
    """kio's class for a version of one of kafka-python's messages."""
    name = message_class.json["name"]
    kind = message_class.json["type"]
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix(kind.capitalize())).lower()
    return getattr(importlib.import_module(f"kio.schema.{package}.v{version}.{kind}"), name)


def kio_read(entity: Any, data: bytes, start: int = 0) -> tuple[Any, int]:
    """The entity in `data` from a position on, and how many bytes it has."""
    parsed, size = entity_reader(entity)(data, start)
    return parsed, size


def kio_bytes(entity: Any) -> bytes:
    """An entity as kio writes it."""
    written = io.BytesIO()
    entity_writer(type(entity))(written, entity)
    return written.getvalue()
