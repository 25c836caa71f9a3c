"""Features and their levels (KIP-584): what ApiVersions says of them, and which changes are possible. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

_METADATA_VERSION = 29
"""Apache Kafka 4.2's: the release whose answers this broker gives."""


class Levels(NamedTuple):
    """The levels of a feature that are supported, both ends inclusive. The highest one is in force for ever."""

    oldest: int
    newest: int


FEATURES: Mapping[str, Levels] = {
    "group.version": Levels(0, 1),
    "metadata.version": Levels(_METADATA_VERSION, _METADATA_VERSION),
}
"""By name, in the order of names."""


class UpgradeType(IntEnum):
    """How a level may be changed."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def refuse_level(feature: str, level: int, upgrade_type: int) -> str | None:
    """Why a feature cannot have this level; None where it has it already."""
    reason = _reason(FEATURES.get(feature), level, upgrade_type)
    return None if reason is None else f"Invalid update version {level} for feature {feature}. {reason}"


def _reason(supported: Levels | None, level: int, upgrade_type: int) -> str | None:
    if upgrade_type not in list(UpgradeType):
        return "The broker does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if supported is None:
        return "The broker does not support this feature."
    if not supported.oldest <= level <= supported.newest:
        return f"The broker only supports versions {supported.oldest}-{supported.newest}"
    if level < supported.newest:
        return "This broker cannot take a feature back."
    return None
