"""How Kafka writes the names of things, in messages and as names of folders. Pure."""

from __future__ import annotations

import base64
import uuid


def partition_name(topic: str, partition: int) -> str:
    """A partition of a topic: `orders-0`."""
    return f"{topic}-{partition}"


def uuid_text(value: uuid.UUID) -> str:
    """Kafka's text form of an id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")
