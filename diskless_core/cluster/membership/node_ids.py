"""Node ids that the cluster gives to brokers with `node.id=auto`: each to one broker, and never again. Pure.

An id is the lowest one that no broker ever had. It belongs to the broker that can show the allocation id that it was
asked for with, until the broker is unregistered. Then it is *retired*: nobody can register with it any more. Ids that
an operator has configured are never retired. (Apache Kafka's brokers have to be given their ids.)
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from diskless_core.cluster.membership.records import BrokerUnregistered, NodeIdAllocated
from diskless_core.cluster.membership.tables import (
    BROKERS,
    CONFIGURED_ID_RUNS,
    MAX_ALLOCATED_ID,
    NODE_ID_RUNS,
    NODE_IDS,
    is_in,
    runs,
)
from diskless_core.cluster.operations import ClusterCommand, Refusal
from diskless_core.coordinator.tables import Reader
from diskless_core.passed_time import Passed
from diskless_core.protocol.errors import ErrorCode

FIRST_NODE_ID = 1
"""Of a cluster without brokers. It is the default of `node.id`."""

IDLE_MS = 24 * 60 * 60 * 1000
"""So long a broker may be fenced until its id is retired: longer than a repair or a night without the machine takes.
To take another id costs a broker nothing but its entry in lists of node ids, so the time is no setting."""

MAX_BROKERS = 10_000
"""Registrations, and ids that wait for one. More are a mistake: each broker keeps them all in memory."""

RETIRED = ErrorCode.BROKER_ID_NOT_REGISTERED
"""What a broker is told whose id is not its own any more. It has to ask for another one."""

NEVER_REGISTERED = -1
"""The epoch of an id that was allocated and never registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A broker whose id is due to be retired. `epoch` is None where it never registered."""

    node_id: int
    epoch: int | None


def allocate(command: ClusterCommand, allocation_id: uuid.UUID) -> int | Refusal:
    """A node id that no broker has had: the same for the same allocation id, as long as it is not retired."""
    for key in command.tx.keys(NODE_IDS, ()):
        known = command.get(NODE_IDS, key)
        if known is not None and known.allocation_id == allocation_id:
            node_id: int = key[0]
            return node_id
    refusal = refuse_one_more(command)
    if refusal is not None:
        return refusal
    node_id = _lowest_free(command.tx)
    if node_id > MAX_ALLOCATED_ID:
        return Refusal(
            code=ErrorCode.INVALID_REGISTRATION,
            message=f"all node ids up to {MAX_ALLOCATED_ID} were given away or configured once, and none comes again: "
            f"set node.id of this broker to {MAX_ALLOCATED_ID + 1} or higher",
        )
    command.emit(NodeIdAllocated(node_id=node_id, allocation_id=allocation_id, allocated_at_ms=command.now_ms))
    return node_id


def refuse(command: ClusterCommand, node_id: int, allocation_id: uuid.UUID | None) -> Refusal | None:
    """Why a broker may not have a node id; None if it may.

    Args:
        allocation_id: what it asked for the id with; None where the id was configured.
    """
    if allocation_id is not None:
        known = command.get(NODE_IDS, (node_id,))
        if known is not None and known.allocation_id == allocation_id:
            return None
        return Refusal(
            code=RETIRED,
            message=f"the node id {node_id} is not this broker's in this cluster, or not any more: "
            f"a broker with node.id=auto takes another one",
        )
    if is_in(NODE_ID_RUNS, node_id, command.tx):
        return Refusal(
            code=ErrorCode.INVALID_REGISTRATION,
            message=f"the cluster has given the node id {node_id} to a broker with node.id=auto, and gives none twice: "
            f"set node.id to another number; {_lowest_free(command.tx)} is free",
        )
    return None


def refuse_one_more(command: ClusterCommand) -> Refusal | None:
    """Why there may not be one broker more; None if there may."""
    taken = {key[0] for table in (BROKERS, NODE_IDS) for key in command.tx.keys(table, ())}
    if len(taken) < MAX_BROKERS:
        return None
    return Refusal(
        code=ErrorCode.INVALID_REGISTRATION,
        message=f"the cluster has {MAX_BROKERS} registered brokers, which is the limit: unregister those that are gone",
    )


def _lowest_free(state: Reader) -> int:
    """The lowest id that no broker ever had."""
    free = FIRST_NODE_ID
    for first, last in sorted([*runs(NODE_ID_RUNS, state), *runs(CONFIGURED_ID_RUNS, state)]):
        if first > free:
            break
        free = max(free, last + 1)
    return free


def idle(state: Reader, passed: Passed, heard: Collection[int]) -> Sequence[Idle]:
    """The brokers whose ids are due to be retired, in ascending order.

    Args:
        heard: brokers that live, although they are fenced.
    """
    found = []
    for (node_id,) in sorted(state.keys(NODE_IDS, ())):
        allocated, registered = state.get(NODE_IDS, (node_id,)), state.get(BROKERS, (node_id,))
        if allocated is None or node_id in heard or (registered is not None and registered.is_live):
            continue
        since_ms = allocated.allocated_at_ms if registered is None else registered.fenced_at_ms
        if passed.since(since_ms) >= IDLE_MS:
            found.append(Idle(node_id=node_id, epoch=registered.epoch if registered is not None else None))
    return found


def retire(command: ClusterCommand, due: Sequence[Idle], passed: Passed) -> Sequence[Idle]:
    """Unregister brokers for good, but for those that have changed since they were found; those that this did it to."""
    still_due = set(idle(command.tx, passed, ()))
    retired = [one for one in due if one in still_due]
    for one in retired:
        epoch = NEVER_REGISTERED if one.epoch is None else one.epoch
        command.emit(BrokerUnregistered(node_id=one.node_id, epoch=epoch))
    return retired
