"""What a setting looks like to a client that asks for it: Kafka's sources and types, and a described value. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class ConfigSource(IntEnum):
    """Kafka's DescribeConfigsResponse.ConfigSource: who said what a setting's value is."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class ConfigType(IntEnum):
    """Kafka's DescribeConfigsResponse.ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Synonym(NamedTuple):
    """One of the values that a setting could have; the first of several is the one that it has."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting of a resource.

    Attributes:
        value: as one would write it; None where it has none or is secret.
        synonyms: all values that were given for it and its default, the one in force first.
    """

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    read_only: bool
    secret: bool
    synonyms: Sequence[Synonym]
    help: str
