"""One broker process: its plugins and its sockets around the parts, started and stopped in order."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import structlog

from diskless_core import logs
from diskless_core.broker.apis import CLIENT_APIS, INTER_BROKER_APIS
from diskless_core.broker.cluster_view import advertised_http
from diskless_core.broker.connection import Server
from diskless_core.broker.contexts import configured_contexts
from diskless_core.broker.counted_objects import StoreUse, counted
from diskless_core.broker.departure import Departure
from diskless_core.broker.dispatch import ApiDispatcher, Apis, with_unstable
from diskless_core.broker.endpoint import Endpoint
from diskless_core.broker.errors import NodeIdRetiredError, StartError
from diskless_core.broker.listening import Listening
from diskless_core.broker.lost_brokers import LostBrokers
from diskless_core.broker.newcomer import Newcomer
from diskless_core.broker.node_identity import IdentityFile, NodeIdentity
from diskless_core.broker.parts import BrokerBackends, BrokerParts, Surroundings, start_parts
from diskless_core.broker.peer_connections import PeerConnections
from diskless_core.broker.rack_traffic import ClientTraffic, PeerTraffic
from diskless_core.broker.selected import plugin_packages, selected_plugins
from diskless_core.broker.services import Services
from diskless_core.broker.starting import EarlyAnswers, StartingDispatcher
from diskless_core.broker.tiering_backends import tiering_backends
from diskless_core.clock import Clock
from diskless_core.cluster.membership.part import Membership
from diskless_core.cluster.membership.peers import RegisteredPeers
from diskless_core.cluster.view import ClusterView, Speaker
from diskless_core.config.load import LoadedConfig
from diskless_core.coordinator.errors import CoordinatorLoadingError
from diskless_core.coordinator.status import ShardStatus
from diskless_core.files.orphans import ScanReport
from diskless_core.metrics import Metrics
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.folders import FolderInUseError, FolderLock, make_folder
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import (
    COORDINATOR_LOG,
    COORDINATOR_STORE,
    GATEWAY_PLACEMENT,
    OFFSET_ASSIGNMENT,
    ORPHAN_DETECTION,
    WAL_OBJECT_STORE,
)
from diskless_core.plugin_host.stalls import LoopWatch
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FeatureLevels
from diskless_core.side_by_side import together
from diskless_core.tiering.part import Tiering

_log = structlog.get_logger(__name__)


class Node:
    """One broker. `start` returns when clients can connect.

    Args:
        levels: what its build knows of feature levels.
    """

    def __init__(
        self, loaded: LoadedConfig, plugins: PluginManager, clock: Clock, levels: FeatureLevels = BUILD_LEVELS
    ) -> None:
        self.metrics = Metrics()
        self._plugins = plugins
        self._clock = clock
        self._levels = levels
        self._asks_for_node_id = loaded.broker.asks_for_node_id
        self._allocation_id: uuid.UUID | None = None
        self._configure(loaded)
        self._stack = AsyncExitStack()
        self._parts: BrokerParts | None = None
        self._for_brokers: tuple[Server, StartingDispatcher] | None = None
        self._membership: Membership | None = None
        self._is_serving = False
        self._http_port: int | None = None

    def _configure(self, loaded: LoadedConfig) -> None:
        self.config = loaded.broker
        self._loaded = loaded
        self._context = configured_contexts(loaded, self._plugins, self._clock, node_id=loaded.broker.node_id)
        self._listening = Listening(loaded.broker, self._clock, self.metrics)
        self.endpoints: Mapping[str, Endpoint] = self._listening.endpoints
        self.peers = RegisteredPeers(loaded.broker.node_id, loaded.broker.inter_broker_listener_name)

    def selected_plugins(self) -> Mapping[str, Any]:
        """The backends of this broker and how they are doing, see `selected_plugins`."""
        return selected_plugins(self._loaded, self._plugins)

    async def start(self) -> None:
        """Start everything, the listeners of clients last. A broker that has no node id asks the cluster for one first.

        Raises:
            NodeIdRetiredError: the id that the cluster had given it is retired, and forgotten: it may start anew.
            StartError: a listener cannot be bound, or the configuration does not fit what there is.
            CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError, PluginFactoryError: a backend cannot start.
        """
        try:
            self._lock_folder()
            self._watch_loop()
            await self._identify()
            self._stack.push_async_callback(self._listening.stop)
            await self._listening.bind()
            await self._serve(await self._start_parts())
        except NodeIdRetiredError:
            if self._asks_for_node_id:
                self._forget_node_id()
            await self._stack.aclose()
            raise
        except BaseException:
            await self._stack.aclose()
            raise

    async def stop(self) -> None:
        """Stop accepting, commit and answer what is under way, then stop everything."""
        await self._stack.aclose()

    @property
    def cluster_id(self) -> str | None:
        """None before `start`."""
        return None if self._parts is None else self._parts.cluster_id

    def advertise_http(self, port: int) -> None:
        """Have others told, from the start on, that the HTTP interface is at this port of this machine."""
        self._http_port = port

    def speaker(self) -> Speaker:
        """Who answers here."""
        node_id = None if self.config.asks_for_node_id else self.config.node_id
        return Speaker(node_id=node_id, cluster_id=self.cluster_id)

    async def cluster_view(self, *, lag: bool, why_fenced: bool) -> ClusterView:
        """The cluster as this broker sees it; see `ClusterSight.view`.

        Raises:
            CoordinatorLoadingError: the broker is starting or stopping.
        """
        if self._parts is None:
            raise CoordinatorLoadingError("the broker is starting or stopping")
        return await self._parts.sight.view(lag=lag, why_fenced=why_fenced)

    def not_ready(self) -> list[str]:
        """Why this broker should get no traffic now; empty when it should."""
        if self._parts is None or not self._is_serving:
            return ["the broker is starting or stopping", *self._unreachable()]
        reasons = [shard.obstacle for shard in self._parts.coordinators.all() if shard.obstacle is not None]
        if self._parts.membership.is_fenced:
            reasons += ["the controller keeps this broker fenced", *self._unreachable()]
        failure = self._parts.produce.failing
        if failure is not None:
            reasons.append(f"the object store does not take writes: {failure}")
        if self._parts.fetch.failing is not None:
            reasons.append(f"the object store does not answer reads: {self._parts.fetch.failing}")
        return reasons

    def _unreachable(self) -> list[str]:
        reason = self._membership.unreachable_because if self._membership is not None else None
        return [reason] if reason is not None else []

    async def shard_status(self, *, count: bool) -> Sequence[ShardStatus]:
        """How the coordinator shards are doing. Arguments and errors as `Coordinators.status`; none before `start`."""
        return [] if self._parts is None else await self._parts.coordinators.status(count=count)

    async def scan_for_orphans(self, *, dry_run: bool) -> ScanReport:
        """Look for objects that nobody committed; arguments and errors as `OrphanScanner.scan`."""
        if self._parts is None:
            raise CoordinatorLoadingError("the broker is starting or stopping")
        return await self._parts.files.orphans.scan(dry_run=dry_run)

    def tiered_storage(self) -> Tiering:
        """Compaction, and what is known of segments.

        Raises:
            CoordinatorLoadingError: the broker is starting or stopping.
        """
        if self._parts is None or not self._is_serving:
            raise CoordinatorLoadingError("the broker is starting or stopping")
        return self._parts.tiering

    # --- starting ------------------------------------------------------------------------------------------------

    def _lock_folder(self) -> None:
        folder = self.config.data_dir.absolute()
        lock = FolderLock(folder)
        try:
            make_folder(folder)
            lock.acquire()
        except FolderInUseError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(f"cannot use {folder}: {error}. Set log.dirs to a folder that can be written") from error
        self._stack.callback(lock.release)

    def _watch_loop(self) -> None:
        self.metrics.watch_plugins(self._plugins.health)
        packages = plugin_packages(self._loaded, self._plugins)
        watch = LoopWatch(self._plugins.health, self._clock, lambda: packages)
        watch.start()
        self._stack.callback(watch.stop)

    async def _identify(self) -> None:
        """Find out this broker's node id, where that is not configured."""
        file = IdentityFile(self.config.data_dir.absolute())
        known = file.read()
        if not self._asks_for_node_id:
            if known is not None and known.node_id == self.config.node_id:
                self._allocation_id = known.allocation_id
            return
        if known is None:
            known = NodeIdentity(allocation_id=self._clock.new_uuid())
            file.write(known)
        node_id = known.node_id
        if node_id is None:
            newcomer = Newcomer(self._loaded, self._plugins, self._clock, self._levels)
            node_id = await newcomer.node_id(known.allocation_id)
            file.write(NodeIdentity(allocation_id=known.allocation_id, node_id=node_id))
            _log.info("the cluster has given this broker a node id", node_id=node_id)
        self._allocation_id = known.allocation_id
        logs.name_node(node_id)
        self._configure(self._loaded.with_node_id(node_id))

    async def until_node_id_is_retired(self) -> None:
        """Wait until the cluster has retired the node id that it gave to this broker, if it ever does.

        The id is forgotten then: when this one is stopped, another broker on the same folder asks for a new one.
        """
        if self._parts is None or not self._asks_for_node_id:
            await asyncio.Event().wait()
        else:
            await self._parts.membership.until_retired()
            self._forget_node_id()

    def _forget_node_id(self) -> None:
        _log.warning("the cluster has retired this broker's node id; another one is asked for")
        IdentityFile(self.config.data_dir.absolute()).forget()

    async def _start_parts(self) -> BrokerParts:
        lost = LostBrokers(self.config.broker_session_timeout_ms / 1000, self._clock)
        connections = PeerConnections(
            self.peers,
            f"broker-{self.config.node_id}",
            self.config.inter_broker_listener_name,
            PeerTraffic(self.metrics, self.config.broker_rack, self.peers.rack_of),
            lost,
        )
        self._stack.push_async_callback(connections.stop)
        self._stack.push_async_callback(lost.stop)
        heartbeats = connections.beside()
        around = Surroundings(
            transport=connections,
            new_transport=connections.beside,
            membership_transport=heartbeats,
            ask_once=connections.ask_once,
            lost_brokers=lost.now,
            serve_brokers=self._serve_brokers,
            peers=self.peers,
            endpoints=self.endpoints,
            clock=self._clock,
            metrics=self.metrics,
            levels=self._levels,
            allocation_id=self._allocation_id,
            http=advertised_http(self.config, self._http_port, self.endpoints) if self._http_port is not None else None,
        )
        backends = self._backends()
        self._parts = await start_parts(self.config, backends, around, self._stack)
        heartbeats.on_lost = self._parts.membership.connection_lost
        self.metrics.broker_info.labels(
            str(self.config.node_id), self.config.broker_rack or "", self._parts.cluster_id
        ).set(1)
        self.metrics.object_store_bills_requests.set(backends.objects.requests_are_billed)
        return self._parts

    def _backends(self) -> BrokerBackends:
        plugins, chosen, context = self._plugins, self._loaded.plugins, self._context
        objects = counted(plugins.create(WAL_OBJECT_STORE, chosen, context), self.metrics, StoreUse.RECORDS)
        return BrokerBackends(
            log=plugins.create(COORDINATOR_LOG, chosen, self._context_of_log),
            store=plugins.create(COORDINATOR_STORE, chosen, context),
            objects=objects,
            objects_source=plugins.source(WAL_OBJECT_STORE, chosen, context),
            offset_assignment=plugins.create(OFFSET_ASSIGNMENT, chosen, context),
            gateway_placement=plugins.create(GATEWAY_PLACEMENT, chosen, context),
            orphan_detection=plugins.create(ORPHAN_DETECTION, chosen, context),
            tiering=tiering_backends(self._loaded, plugins, context, objects, self._clock),
        )

    def _context_of_log(self, noun: str, name: str) -> PluginContext:
        context = self._context(noun, name)
        source = context.object_store
        if source is None:
            return context
        return replace(context, object_store=lambda: counted(source(), self.metrics, StoreUse.LOG))

    # --- serving -------------------------------------------------------------------------------------------------

    async def _serve_brokers(self, early: EarlyAnswers) -> None:
        """Answer other brokers what can be answered before all parts are there."""
        self._membership = early.membership
        name = self.config.inter_broker_listener_name
        if name is None:
            return
        dispatcher = StartingDispatcher(early, name)
        server = self._listening.peer_server(dispatcher)
        self._for_brokers = server, dispatcher
        await self._listening.start({name: server})

    async def _serve(self, parts: BrokerParts) -> None:
        services = Services.of(self.config, parts, self._clock, self.metrics, self.endpoints)
        traffic = ClientTraffic(self.metrics, self.config.broker_rack, services.client_racks.rack_of)
        clients = self._listening.client_server(
            ApiDispatcher(services, self._enabled(CLIENT_APIS), traffic),
            services.configs.max_connections,
            services.writer.backlog,
        )
        servers = {listener.name: clients for listener in self.config.listeners}
        name = self.config.inter_broker_listener_name
        self._stack.push_async_callback(self._listening.stop)  # before the parts, which answer other brokers
        if name is not None:
            dispatcher = ApiDispatcher(services, self._enabled(INTER_BROKER_APIS))
            if self._for_brokers is None:
                servers[name] = self._listening.peer_server(dispatcher)
            else:
                server, starting = self._for_brokers
                del servers[name]
                server.dispatcher = dispatcher
                starting.hand_over(dispatcher)
        await self._listening.start(servers)
        self._is_serving = True
        self._stack.push_async_callback(self._stop_serving, parts, services.departure)

    def _enabled(self, apis: Apis) -> Apis:
        return with_unstable(apis) if self.config.unstable_api_versions_enable else apis

    async def _stop_serving(self, parts: BrokerParts, departure: Departure) -> None:
        self._is_serving = False
        membership = parts.membership
        membership.has_clients = lambda: not departure.is_over
        seeing_off = departure.see_clients_off(
            is_leaving=lambda: membership.is_leaving,
            has_clients=lambda: self._listening.has_clients and membership.somebody_stays,
            clients_wait=lambda: self._listening.clients_wait,
        )
        await together((membership.leave(self.config.diskless_shutdown_timeout_ms / 1000), seeing_off))
        self._listening.refuse_clients()
        await parts.settle_requests()
        await self._listening.end_clients()
