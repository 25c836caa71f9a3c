"""How a member gets from what it owns to what it is to own: first it gives up, then it gets what others gave up.

    STABLE ──new target──▶ UNREVOKED_PARTITIONS ──given up──▶ next epoch: STABLE, or UNRELEASED_PARTITIONS
                                                              while others still own what it is to get

A partition counts as owned by a member until the member says that it does not, or is out of the group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from diskless_core.groups.consumer.model import Assigned, CurrentAssignment, MemberState, Partitions, TopicIdPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a member is to get.

    Attributes:
        epoch: group epoch of the target assignment.
        partitions: what the member is to own.
    """

    epoch: int
    partitions: Partitions


def reconciled(
    current: CurrentAssignment,
    target: Target,
    owned: Partitions | None,
    others_own: Callable[[], frozenset[TopicIdPartition]],
) -> CurrentAssignment:
    """The next step of a member, or its present assignment if there is none to take now.

    Args:
        owned: partitions that the member says to own; None when it does not say.
        others_own: partitions that other members own. Asked only where it matters.
    """
    if current.state is MemberState.STABLE and current.epoch == target.epoch:
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, current.revoking):
        return current
    kept = {one: epoch for one, epoch in current.assigned.items() if one in target.partitions}
    surplus = {one: epoch for one, epoch in current.assigned.items() if one not in target.partitions}
    if surplus and _owns_any(owned, surplus):
        return replace(
            current,
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=surplus,
        )
    missing = target.partitions - kept.keys()
    free = missing - others_own() if missing else missing
    step = CurrentAssignment(
        epoch=target.epoch,
        previous_epoch=current.epoch,
        state=MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS,
        assigned=kept | dict.fromkeys(sorted(free), target.epoch),
    )
    return current if _is_same(step, current) else step


def _owns_any(owned: Partitions | None, partitions: Assigned) -> bool:
    """Whether a member has any of these left, for all that is known."""
    return owned is None or any(one in partitions for one in owned)


def _is_same(step: CurrentAssignment, current: CurrentAssignment) -> bool:
    """Whether a member that waits would only wait on."""
    return replace(step, previous_epoch=current.previous_epoch) == current
