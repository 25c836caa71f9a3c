"""Another process with this broker's node id, found before this one may lead anything.

The controller refuses a second process with the node id of a broker that lives. But what if that is the controller
itself? A log nominates node ids, and would take both processes for the controller. So a process that starts asks the
one that is registered with its node id, at the address that is registered, whether it is the controller.
"""

from __future__ import annotations

import asyncio
import uuid

from diskless_core.cluster.membership import wire
from diskless_core.cluster.membership.member import MembershipRefusedError
from diskless_core.cluster.membership.model import BrokerSpec
from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import CLUSTER, CLUSTER_ID
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.protocol.errors import ErrorCode

PATIENCE_S = 1.0
"""How long the other process has for an answer. One that stands still does no harm: claims fence it."""

PAUSE_S = 0.5
"""Between two questions. The controller has heard of no dead process since the first one."""


async def require_none(
    spec: BrokerSpec, allocation_id: uuid.UUID | None, shard: ClusterShard, calls: PeerCalls
) -> None:
    """Return unless another process with the node id is the controller.

    Args:
        spec: as this process registers, which it may already do by asking.
        allocation_id: what its node id was asked for with; None where it was configured.
        shard: which has read what was in the log.
        calls: to the address that is registered with this node's own id, among others.

    Raises:
        MembershipRefusedError: there is one.
    """
    for is_last in (False, True):
        refusal = await _refusal(spec, allocation_id, shard, calls)
        if refusal is None:
            return
        if is_last:
            raise MembershipRefusedError(refusal)
        await asyncio.sleep(PAUSE_S)


async def _refusal(
    spec: BrokerSpec, allocation_id: uuid.UUID | None, shard: ClusterShard, calls: PeerCalls
) -> str | None:
    """Why the process at the registered address refuses this one as the second with its node id, if it does."""
    known = shard.state.committed(BROKERS, (spec.node_id,))
    cluster_id = shard.state.committed(CLUSTER, CLUSTER_ID)
    if known is None or cluster_id is None or known.spec.listeners == spec.listeners:
        return None  # where this process listens, the other one does no more
    try:
        async with asyncio.timeout(PATIENCE_S):
            response = await calls.call(spec.node_id, wire.registration_request(spec, cluster_id, allocation_id))
    except (CoordinatorError, TimeoutError):
        return None
    refusal = wire.refused_registration(response)
    is_heard = refusal.silent_s is not None and refusal.silent_s < PAUSE_S
    return refusal.message if refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and is_heard else None
