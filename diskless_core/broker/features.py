"""Features and their levels (KIP-584): what ApiVersions says of them, and which changes are possible. Pure.

`diskless.version` is the cluster's own: its level is in the cluster shard and can be raised. The others are what
clients of Apache Kafka look for; they are at their highest level and stay there.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from diskless_core.protocol.feature_levels import FEATURE, LevelRange

_METADATA_VERSION = 29
"""Apache Kafka 4.2's: the release whose answers this broker gives."""

FIXED_FEATURES: Mapping[str, LevelRange] = {
    "group.version": LevelRange(0, 1),
    "metadata.version": LevelRange(_METADATA_VERSION, _METADATA_VERSION),
}
"""Those whose highest level is in force for ever, by name."""


class UpgradeType(IntEnum):
    """How a level may be changed."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def supported(levels: LevelRange) -> Mapping[str, LevelRange]:
    """The levels of all features in the order of their names, where the build has these of `diskless.version`."""
    return {FEATURE: levels, **FIXED_FEATURES}


def finalized(level: int) -> Mapping[str, int]:
    """The level in force of all features in the order of their names, where the cluster has this of its own."""
    return {FEATURE: level} | {name: levels.newest for name, levels in FIXED_FEATURES.items()}


def refuse_level(feature: str, level: int, upgrade_type: int) -> str | None:
    """Why a feature cannot have this level; None where it has it already, or where the cluster decides."""
    reason = _reason(feature, level, upgrade_type)
    return None if reason is None else refusal(feature, level, reason)


def refusal(feature: str, level: int, reason: str) -> str:
    """What a client is told of a level that cannot be had."""
    return f"Invalid update version {level} for feature {feature}. {reason}"


def _reason(feature: str, level: int, upgrade_type: int) -> str | None:
    if upgrade_type not in list(UpgradeType):
        return "The broker does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if feature == FEATURE:
        return None
    levels = FIXED_FEATURES.get(feature)
    if levels is None:
        return "The broker does not support this feature."
    if not levels.has(level):
        return f"The broker only supports versions {levels}"
    if level < levels.newest:
        return "This broker cannot take a feature back."
    return None
