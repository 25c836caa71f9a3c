"""The cluster's level of `diskless.version`: when it is raised, and which brokers may be members at it. Pure.

(KIP-584, "Feature versioning"; KIP-778, "Upgrades".)
"""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.cluster.membership.model import BrokerSpec
from diskless_core.cluster.membership.operations import registrations
from diskless_core.cluster.operations import ClusterCommand, Refusal
from diskless_core.coordinator.tables import Reader
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.feature_levels import FEATURE, LevelRange


def registered_levels(state: Reader) -> Mapping[int, LevelRange | None]:
    """What each registered broker supports; None for one that does not know the feature."""
    return {node_id: one.spec.features.get(FEATURE) for node_id, one in registrations(state).items()}


def object_to(command: ClusterCommand, spec: BrokerSpec) -> Refusal | None:
    """Why a broker may not register at the level in force; see `refuse_broker`."""
    return refuse_broker(spec.node_id, spec.features.get(FEATURE), command.level)


def raise_level(
    command: ClusterCommand,
    wanted: int,
    *,
    build: LevelRange,
    brokers: Mapping[int, LevelRange | None],
    validate_only: bool = False,
) -> Refusal | None:
    """Raise the level if all registered brokers can read it. Levels never go down, and asking twice is no error.

    Args:
        build: what this node, which leads the shard, supports.
        brokers: what each registered broker supports; None for one that does not know the feature.
    """
    reason = _reason(command.level, wanted, build, brokers)
    if reason is not None:
        return Refusal(code=ErrorCode.INVALID_UPDATE_VERSION, message=reason)
    if wanted > command.level and not validate_only:
        command.raise_level(wanted)
    return None


def _reason(in_force: int, wanted: int, build: LevelRange, brokers: Mapping[int, LevelRange | None]) -> str | None:
    if wanted < in_force:
        return f"The level in force is {in_force}, and a level is never taken back."
    if wanted == in_force:
        return None
    if not build.has(wanted):
        return f"The broker only supports versions {build}"
    for node_id, supported in sorted(brokers.items()):
        if supported is None:
            return f"Broker {node_id} does not support this feature."
        if not supported.has(wanted):
            return f"Broker {node_id} only supports versions {supported}"
    return None


def refuse_broker(node_id: int, supported: LevelRange | None, in_force: int) -> Refusal | None:
    """Why a broker that supports these levels may not register while this one is in force; None if it may.

    Args:
        supported: None where the broker does not know the feature.
    """
    if supported is not None and supported.has(in_force):
        return None
    known = f"supports {supported}" if supported is not None else "does not know it"
    todo = "downgrade" if supported is not None and supported.oldest > in_force else "upgrade"
    return Refusal(
        code=ErrorCode.UNSUPPORTED_VERSION,
        message=f"{FEATURE} is {in_force} in this cluster, and broker {node_id} {known}: {todo} the broker",
    )
