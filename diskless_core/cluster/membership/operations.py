"""The decisions about members that become records of the cluster shard (KIP-631, "Broker registration"). Pure.

What a leader knows of heartbeats is told to these functions; they only know registrations.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from diskless_core.cluster.membership import node_ids
from diskless_core.cluster.membership.model import BrokerSpec, Registration
from diskless_core.cluster.membership.records import BrokerChanged, BrokerRegistered, BrokerUnregistered
from diskless_core.cluster.membership.tables import BROKERS, LAST_BROKER_EPOCH, ONLY_ROW
from diskless_core.cluster.operations import ClusterCommand, Refusal
from diskless_core.coordinator.tables import Reader
from diskless_core.protocol.errors import ErrorCode

Objection = Callable[[ClusterCommand, BrokerSpec], Refusal | None]
"""Why a broker may not be a member, beside what `register` looks at itself; None where it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A node id has a process already. `silent_s` is how long it has not been heard, None where it never was."""

    refusal: Refusal
    silent_s: float | None


def no_objection(_command: ClusterCommand, _spec: BrokerSpec) -> Refusal | None:
    """Every broker may be a member."""
    return None


def register(
    command: ClusterCommand,
    spec: BrokerSpec,
    *,
    is_live: Callable[[Registration], bool],
    objection: Objection = no_objection,
    allocation_id: uuid.UUID | None = None,
) -> Registration | Refusal:
    """Make a broker a member, fenced at first; the registration that it has now.

    The same process gets the registration that it has, if it asks again.

    Args:
        is_live: whether the process that has registered with this node id before is still heard of.
        allocation_id: what the node id was asked for with; None where it was configured.
    """
    known = command.get(BROKERS, (spec.node_id,))
    if known is not None and known.spec == spec:
        return known
    refusal = node_ids.refuse(command, spec.node_id, allocation_id)
    if refusal is not None:
        return refusal
    if known is not None and known.spec.incarnation_id != spec.incarnation_id and is_live(known):
        return Refusal(
            code=ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            message=f"the node id {spec.node_id} is that of the broker at {known.spec.address}, which runs",
        )
    refusal = objection(command, spec)
    if refusal is None and known is None and allocation_id is None:
        refusal = node_ids.refuse_one_more(command)
    if refusal is not None:
        return refusal
    epoch = (command.get(LAST_BROKER_EPOCH, ONLY_ROW) or 0) + 1
    command.emit(BrokerRegistered(spec=spec, epoch=epoch, at_ms=command.now_ms))
    return Registration(spec=spec, epoch=epoch, is_fenced=True, fenced_at_ms=command.now_ms)


def check_epoch(state: Reader, node_id: int, epoch: int) -> Registration | ErrorCode:
    """The registration that a broker speaks of; the error of one that does not hold any more."""
    known = state.get(BROKERS, (node_id,))
    if known is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    return known if known.epoch == epoch else ErrorCode.STALE_BROKER_EPOCH


def change(
    command: ClusterCommand, node_id: int, epoch: int, *, is_fenced: bool | None = None, shuts_down: bool = False
) -> bool:
    """Fence or unfence a broker, or note that it shuts down. False where nothing was left to change."""
    known = command.get(BROKERS, (node_id,))
    if known is None or known.epoch != epoch:
        return False
    fences = is_fenced is not None and is_fenced != known.is_fenced
    begins = shuts_down and not known.is_shutting_down
    if not (fences or begins):
        return False
    command.emit(
        BrokerChanged(
            node_id=node_id,
            epoch=epoch,
            at_ms=command.now_ms,
            is_fenced=is_fenced if fences else None,
            shuts_down=begins,
        )
    )
    return True


def fence(command: ClusterCommand, brokers: Sequence[Registration]) -> Sequence[int]:
    """Fence brokers; the node ids of those that this changed. One that has registered again stays what it is."""
    return [known.spec.node_id for known in brokers if change(command, known.spec.node_id, known.epoch, is_fenced=True)]


def unregister(command: ClusterCommand, node_id: int) -> Refusal | None:
    """Forget a broker that is fenced."""
    known = command.get(BROKERS, (node_id,))
    if known is None:
        message = f"Broker ID {node_id} is not currently registered"
        return Refusal(code=ErrorCode.BROKER_ID_NOT_REGISTERED, message=message)
    if known.is_live:
        return Refusal(code=ErrorCode.INVALID_REQUEST, message=f"Broker {node_id} is running.")
    command.emit(BrokerUnregistered(node_id=node_id, epoch=known.epoch))
    return None


def registrations(state: Reader) -> Mapping[int, Registration]:
    """All brokers by node id, in ascending order."""
    found = {key[0]: state.get(BROKERS, key) for key in sorted(state.keys(BROKERS, ()))}
    return {node_id: one for node_id, one in found.items() if one is not None}
