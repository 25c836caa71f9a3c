"""Whom a quota is for and what it limits, in the words of Kafka's quota APIs (KIP-546). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

ANONYMOUS = "ANONYMOUS"
"""Kafka's name of the principal of a connection without authentication."""


class EntityType(StrEnum):
    """What an entity is made of. Addresses (`ip`) have quotas in Kafka, but not here."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaKey(StrEnum):
    """What can be limited, in bytes a second."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"


Entity = tuple[tuple[str, str | None], ...]
"""The parts, type and name, sorted by type. Without a name it is all of a type that have no quota of their own."""

Quotas = Mapping[Entity, Mapping[str, float]]
"""All quotas: for each entity, limits by key."""


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """The entity with these names by type."""
    return tuple(sorted(parts.items()))


def encode_entity(entity: Entity) -> str:
    """An entity as text, always the same for the same one."""
    return json.dumps(entity, ensure_ascii=False)


def decode_entity(text: str) -> Entity:
    """What `encode_entity` was given."""
    return tuple((kind, name) for kind, name in json.loads(text))
