"""A broker that has no node id yet asks the cluster for one, before it starts.

It follows the cluster shard, as any broker does, finds the controller there, and asks that. Where nobody leads the
cluster shard, as in a new cluster, it may come to lead it, and gives the id to itself. So it has a provisional node
id, drawn at random, which is of no use to others: nobody is registered with it. When it has its id it lets go of
everything, and starts as the broker that it is then. Two brokers that begin a cluster at once claim the shard as any
two do. The one that comes second goes on when the first has let go of the shard, or has registered.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from functools import partial

import structlog

from diskless_core.background import end_backend
from diskless_core.broker.awaited_objects import AwaitedObjects
from diskless_core.broker.cluster_identity import cluster_id_of
from diskless_core.broker.contexts import configured_contexts
from diskless_core.broker.coordinators import new_counts
from diskless_core.broker.errors import StartError
from diskless_core.broker.peer_connections import PeerConnections
from diskless_core.broker.shared_log import missing_listener
from diskless_core.clock import Clock
from diskless_core.cluster.membership import node_ids
from diskless_core.cluster.membership.peers import RegisteredPeers
from diskless_core.cluster.membership.tables import MAX_ALLOCATED_ID
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.shard import ClusterShard
from diskless_core.config.load import LoadedConfig
from diskless_core.config.placement import may_lead
from diskless_core.config.types import MAX_INT
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.errors import CoordinatorError, NotControllerError
from diskless_core.coordinator.shard import ShardServices
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import COORDINATOR_LOG, COORDINATOR_STORE, WAL_OBJECT_STORE
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.feature_levels import FeatureLevels
from diskless_core.protocol.messages import DisklessAllocateNodeIdRequest
from diskless_core.shards import CLUSTER_SHARD

RETRY_S = 0.2
"""Between questions that get no answer."""

ANSWER_MS = 2_000
"""How long the controller has for an answer."""

PATIENCE_S = 10.0
"""How long a start waits before it says what for, each time anew."""

_log = structlog.get_logger(__name__)


class Newcomer:
    """Gets a node id. It is used once, and lets go of all backends then."""

    def __init__(self, loaded: LoadedConfig, plugins: PluginManager, clock: Clock, levels: FeatureLevels) -> None:
        self._provisional_id = clock.random().randint(MAX_ALLOCATED_ID + 1, MAX_INT)
        self._loaded = loaded.with_node_id(self._provisional_id)
        self._config = self._loaded.broker
        self._plugins = plugins
        self._clock = clock
        self._levels = levels
        self._obstacle: str | None = None

    async def node_id(self, allocation_id: uuid.UUID) -> int:
        """A node id, as soon as the cluster gives one: the same one for the same allocation id.

        Raises:
            StartError: the cluster gives none, or is not this broker's.
            CoordinatorLogError, CoordinatorStoreError, CoordinatorError, WalObjectStoreError, PluginFactoryError: a
                backend cannot be used.
        """
        async with AsyncExitStack() as stack:
            complaints = asyncio.create_task(self._complain(), name="node id")
            stack.callback(complaints.cancel)
            return await self._node_id(allocation_id, stack)

    async def _node_id(self, allocation_id: uuid.UUID, stack: AsyncExitStack) -> int:
        config, chosen = self._config, self._loaded.plugins
        context = configured_contexts(self._loaded, self._plugins, self._clock, node_id=self._provisional_id)
        objects = self._plugins.create(WAL_OBJECT_STORE, chosen, context)
        awaited = AwaitedObjects(config.diskless_startup_timeout_ms, self._clock)
        stack.push_async_callback(partial(end_backend, "wal_object_store", objects))
        await awaited.do(objects.start)
        log = self._plugins.create(COORDINATOR_LOG, chosen, context)
        missing = missing_listener(log, config)
        if missing is not None:
            raise StartError(missing)
        stack.push_async_callback(log.stop)
        await log.start()
        peers = RegisteredPeers(self._provisional_id, config.inter_broker_listener_name)
        connections = PeerConnections(peers, "broker-without-id", config.inter_broker_listener_name)
        stack.push_async_callback(connections.stop)
        services = ShardServices(
            node_id=self._provisional_id,
            clock=self._clock,
            log=log,
            store=self._plugins.create(COORDINATOR_STORE, chosen, context),
            snapshots=Snapshots.of(config, objects, self._clock, self._levels),
            may_lead=lambda shard: (
                not log.is_shared or may_lead(config.diskless_coordinator_placement, shard, self._provisional_id)
            ),
            levels=self._levels,
            new_transport=connections.beside,
        )
        cluster = ClusterShard(CLUSTER_SHARD, services)
        stack.push_async_callback(cluster.stop)
        peers.follow(cluster)
        self._obstacle = "nobody is known to lead the cluster shard"
        await cluster.start()
        await cluster.until_serving()
        counts = new_counts(config, log)
        cluster_id = await cluster_id_of(config, cluster, objects, awaited, self._clock, counts)
        calls = PeerCalls(connections, timeout_ms=ANSWER_MS, transfer_s=0)
        return await self._ask(cluster, calls, cluster_id, allocation_id)

    async def _ask(self, cluster: ClusterShard, calls: PeerCalls, cluster_id: str, allocation_id: uuid.UUID) -> int:
        while True:
            try:
                return await self._asked(cluster, calls, cluster_id, allocation_id)
            except CoordinatorError as error:
                self._obstacle = str(error)
            await asyncio.sleep(RETRY_S)

    async def _asked(self, cluster: ClusterShard, calls: PeerCalls, cluster_id: str, allocation_id: uuid.UUID) -> int:
        """The answer of whoever leads the cluster shard.

        Raises:
            CoordinatorError: there is none, or none that holds.
            StartError: it is no.
        """
        if cluster.leading:
            answer = await cluster.submit(lambda command: node_ids.allocate(command, allocation_id))
            return _taken(answer)
        controller = cluster.leader_hint
        if controller is None or controller == self._provisional_id:
            raise NotControllerError("nobody is known to lead the cluster shard")
        response = await calls.call(
            controller, DisklessAllocateNodeIdRequest(cluster_id=cluster_id, allocation_id=allocation_id)
        )
        code = code_of(response.error_code)
        if code is ErrorCode.NONE:
            return _taken(response.node_id)
        message = response.error_message or code.name
        if code in _REFUSALS:
            return _taken(Refusal(code=code, message=message))
        raise CoordinatorError(f"node {controller}: {message}")

    async def _complain(self) -> None:
        while True:
            await asyncio.sleep(PATIENCE_S)
            _log.warning("the broker waits for a node id", reason=self._obstacle)


_REFUSALS = frozenset(
    {
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Answers that another question would get as well."""


def _taken(answer: int | Refusal) -> int:
    if isinstance(answer, Refusal):
        raise StartError(f"the cluster gives this broker no node id: {answer.message}")
    if not 0 <= answer <= MAX_ALLOCATED_ID:
        raise StartError(f"the controller gave this broker the node id {answer}, which is none")
    return answer
