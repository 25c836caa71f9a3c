"""The composition root: makes the parts of a broker from its configuration, starts and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import structlog

from diskless_core.broker.apis import CLIENT_APIS, INTER_BROKER_APIS
from diskless_core.broker.contexts import plugin_contexts, shard_snapshots, snapshot_prefix
from diskless_core.broker.coordinators import Coordinators
from diskless_core.broker.dispatch import ApiDispatcher
from diskless_core.broker.errors import StartError
from diskless_core.broker.listening import Listening
from diskless_core.broker.object_owner import ObjectOwner
from diskless_core.broker.part_settings import quota_window, retention_rules, snapshot_rules, writer_settings
from diskless_core.broker.peer_connections import PeerConnections
from diskless_core.broker.services import Endpoint, Services
from diskless_core.broker.shard_watch import ShardWatch
from diskless_core.broker.tiered_storage import NodeParts, TieredStorage, start_tiered_storage
from diskless_core.clock import Clock, uuid_text
from diskless_core.cluster.client_quotas import ClientQuotas
from diskless_core.cluster.config_layers import BrokerSettings
from diskless_core.cluster.configs import Configs
from diskless_core.cluster.placements import shards_in_use
from diskless_core.cluster.producer_ids import ProducerIds
from diskless_core.cluster.state_machine import TOPICS
from diskless_core.cluster.topics import Topics
from diskless_core.config.load import LoadedConfig
from diskless_core.config.placement import may_lead
from diskless_core.coordinator.errors import CoordinatorLoadingError
from diskless_core.coordinator.peers import PeerAddress, PeerMap
from diskless_core.coordinator.shard import ShardServices
from diskless_core.coordinator.snapshotter import Snapshotter
from diskless_core.coordinator.status import ShardStatus
from diskless_core.diskless.clients import CoordinatorClients
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.service import CoordinatorService
from diskless_core.fetch.fetcher import Fetcher
from diskless_core.fetch.object_cache import ObjectCache
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.fetch.offsets import OffsetLookup
from diskless_core.fetch.read_ahead import ReadAhead
from diskless_core.files.deletion import DeletionServices
from diskless_core.files.orphans import OrphanScanner, OrphanServices, ScanReport
from diskless_core.files.retention_worker import RetentionSchedule
from diskless_core.files.service import FileMaintenance, for_ever
from diskless_core.groups.service import GroupCoordinator
from diskless_core.groups.settings import GroupSettings
from diskless_core.metrics import Metrics
from diskless_core.plugin.folders import FolderInUseError, FolderLock, make_folder
from diskless_core.plugin.hookspecs import (
    COORDINATOR_LOG,
    COORDINATOR_STORE,
    OFFSET_ASSIGNMENT,
    ORPHAN_DETECTION,
    WAL_OBJECT_STORE,
)
from diskless_core.plugin.manager import PluginManager
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.produce.committer import Committer, CommitterServices
from diskless_core.produce.uploader import Uploader
from diskless_core.produce.writer import WalWriter
from diskless_core.quotas.managers import QuotaManagers

COMMIT_S = 30.0
"""How long a clean shutdown waits for what was produced to be committed: the object store may be down for ever."""

_READ_AHEAD_PART = 4  # of the cache: what is read ahead has to stay there until it is wanted

_log = structlog.get_logger(__name__)


class Node:
    """One broker. `start` returns when clients can connect."""

    def __init__(self, loaded: LoadedConfig, plugins: PluginManager, clock: Clock) -> None:
        self.config = loaded.broker
        self.metrics = Metrics()
        self._loaded = loaded
        self._plugins = plugins
        self._clock = clock
        self._context = plugin_contexts(loaded.broker, clock, node_id=loaded.broker.node_id)
        self._listening = Listening(loaded.broker, clock, self.metrics)
        self.endpoints: Mapping[str, Endpoint] = self._listening.endpoints
        self.peers = PeerMap(loaded.broker.node_id)
        self.cluster_id: str | None = None
        self._stack = AsyncExitStack()
        self._coordinators: Coordinators | None = None
        self._is_serving = False
        self._uploader: Uploader | None = None
        self._orphans: OrphanScanner | None = None
        self._tiered: TieredStorage | None = None

    async def start(self) -> None:
        """Start everything, the listeners last.

        Raises:
            StartError: a listener cannot be bound, or the configuration does not fit what there is.
            CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError, PluginFactoryError: a backend cannot start.
        """
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def stop(self) -> None:
        """Stop accepting, commit and answer what is under way, then stop everything."""
        await self._stack.aclose()

    def not_ready(self) -> list[str]:
        """Why this broker should get no traffic now; empty when it should."""
        if self._coordinators is None or not self._is_serving:
            return ["the broker is starting or stopping"]
        reasons = [shard.obstacle for shard in self._coordinators.all() if shard.obstacle is not None]
        if self._uploader is not None and self._uploader.failing is not None:
            reasons.append(f"the object store refuses writes: {self._uploader.failing}")
        return reasons

    async def shard_status(self, *, count: bool) -> Sequence[ShardStatus]:
        """How the coordinator shards are doing. Arguments and errors as `Coordinators.status`; none before `start`."""
        return [] if self._coordinators is None else await self._coordinators.status(count=count)

    async def scan_for_orphans(self, *, dry_run: bool) -> ScanReport:
        """Look for objects that nobody committed; arguments and errors as `OrphanScanner.scan`."""
        if self._orphans is None:
            raise CoordinatorLoadingError("the broker is starting or stopping")
        return await self._orphans.scan(dry_run=dry_run)

    def tiered_storage(self) -> TieredStorage:
        """Compaction, and what is known of segments.

        Raises:
            CoordinatorLoadingError: the broker is starting or stopping.
        """
        if self._tiered is None or not self._is_serving:
            raise CoordinatorLoadingError("the broker is starting or stopping")
        return self._tiered

    # --- starting ------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._lock_folder()
        objects = self._plugins.create(WAL_OBJECT_STORE, self._loaded.plugins, self._context)
        await objects.start()
        self._stack.push_async_callback(objects.stop)
        coordinators = await self._start_coordinators(objects)
        directory = self._directory(coordinators)
        services = await self._build_services(coordinators, directory, objects)
        await self._serve(services)

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

    async def _start_coordinators(self, objects: WalObjectStore) -> Coordinators:
        log = self._plugins.create(COORDINATOR_LOG, self._loaded.plugins, self._context)
        store = self._plugins.create(COORDINATOR_STORE, self._loaded.plugins, self._context)
        rules = CommitRules(
            assignment=self._plugins.create(OFFSET_ASSIGNMENT, self._loaded.plugins, self._context),
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
        )
        await log.start()
        self._stack.push_async_callback(log.stop)
        snapshots = shard_snapshots(self.config, objects, self._clock)
        shard_services = ShardServices(
            node_id=self.config.node_id,
            clock=self._clock,
            log=log,
            store=store,
            snapshots=snapshots,
            metrics=self.metrics,
            may_lead=lambda shard: may_lead(self.config.diskless_coordinator_placement, shard, self.config.node_id),
        )
        coordinators = Coordinators.build(shard_services, rules, self.config.diskless_metadata_topic_num_partitions)
        self._stack.push_async_callback(coordinators.stop)
        await coordinators.start()
        self._run_until_stopped(ShardWatch(coordinators, self.metrics).run, "figures of shards")
        for shard in coordinators.all():
            snapshotter = Snapshotter(shard, log, snapshots, snapshot_rules(self.config), self._clock)
            self._run_until_stopped(snapshotter.run, f"{shard.id} snapshots")
        self._coordinators = coordinators
        return coordinators

    def _run_until_stopped(self, loop: Callable[[], Awaitable[None]], name: str) -> None:
        task = asyncio.create_task(for_ever(loop), name=name)

        async def stop() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(stop)

    def _directory(self, coordinators: Coordinators) -> CoordinatorClients:
        connections = PeerConnections(self.peers, client_id=f"broker-{self.config.node_id}")
        self._stack.push_async_callback(connections.stop)
        directory = CoordinatorClients(self.config.node_id, coordinators.diskless, connections, self.peers)
        self._stack.push_async_callback(directory.stop)
        return directory

    async def _build_services(
        self, coordinators: Coordinators, directory: CoordinatorClients, objects: WalObjectStore
    ) -> Services:
        config, clock, metrics = self.config, self._clock, self.metrics
        wanted_id = config.cluster_id or uuid_text(clock.new_uuid())
        owner = ObjectOwner(objects, prefix=config.diskless_wal_object_prefix, beside=snapshot_prefix(config))
        cluster_id = self.cluster_id = await coordinators.cluster_id(wanted_id, owner.require_nobody)
        if config.cluster_id is not None and cluster_id != config.cluster_id:
            raise StartError(
                f"the data in {config.data_dir} belongs to the cluster {cluster_id}, not {config.cluster_id}: "
                f"change cluster.id or log.dirs"
            )
        await owner.require(cluster_id, has_topics=coordinators.cluster.state.row_count(TOPICS) > 0)
        configs = Configs(coordinators.cluster, BrokerSettings.of(config))
        quotas = QuotaManagers(quota_window(config), clock)
        topics = Topics(coordinators.cluster, coordinators.diskless, directory.coordinators, configs, clock)
        self._stack.push_async_callback(topics.stop)
        reader = ObjectReader(objects, ObjectCache(config.diskless_fetch_cache_max_bytes, metrics), metrics)
        read_ahead = ReadAhead(reader, config.diskless_fetch_cache_max_bytes // _READ_AHEAD_PART)
        self._stack.push_async_callback(read_ahead.stop)
        purgatory, positions = Purgatory(), OffsetRangeCheck(topics.coordinator_of)
        tiered = await self._start_tiered_storage(cluster_id, coordinators, objects, topics, reader, positions)
        lookup = OffsetLookup(reader, tiered.reads.times, tiered.is_tiered)
        for shard in coordinators.diskless.values():
            shard.on_commit(purgatory.wake)
            shard.find_offsets_with(lookup.list)
        committer = Committer(
            CommitterServices(
                node_id=config.node_id,
                clock=clock,
                metrics=metrics,
                shards=directory.coordinators,
                shard_of=topics.shard_of,
            )
        )
        uploader = self._uploader = Uploader(objects, config.diskless_append_upload_parallelism, clock, metrics)
        writer = WalWriter(
            writer_settings(config, objects),
            uploader,
            committer,
            clock,
            metrics,
            on_uploaded=reader.uploaded,
        )
        self._start_file_maintenance(coordinators, directory, objects, topics, reader)
        groups = GroupCoordinator(coordinators.groups, clock, GroupSettings.of(config))
        await groups.start()
        self._stack.push_async_callback(groups.stop)
        topics.on_deletion(groups.topic_deleted)
        await topics.start()
        return Services(
            config=config,
            cluster_id=cluster_id,
            clock=clock,
            metrics=metrics,
            topics=topics,
            configs=configs,
            client_quotas=ClientQuotas(coordinators.cluster, quotas.replace),
            quotas=quotas,
            producer_ids=ProducerIds(coordinators.cluster, config.node_id),
            writer=writer,
            fetcher=Fetcher(
                topics.replica_of, positions, reader, read_ahead, purgatory, clock, metrics, tiered.reads.fetcher
            ),
            groups=groups,
            endpoints=self.endpoints,
            purgatory=purgatory,
            coordinators=CoordinatorService(config.node_id, coordinators.diskless, self.peers, purgatory, clock),
        )

    def _start_file_maintenance(
        self,
        coordinators: Coordinators,
        directory: CoordinatorClients,
        objects: WalObjectStore,
        topics: Topics,
        reader: ObjectReader,
    ) -> None:
        services = DeletionServices(
            objects=objects,
            shards=coordinators.diskless,
            coordinators=directory.coordinators,
            delete_delay_ms=self.config.diskless_file_delete_delay_ms,
            clock=self._clock,
            metrics=self.metrics,
            on_deleted=reader.deleted,
        )
        schedule = RetentionSchedule(
            initial_delay_ms=self.config.log_initial_task_delay_ms,
            interval_ms=self.config.log_retention_check_interval_ms,
        )
        maintenance = FileMaintenance(services, retention_rules(topics), schedule)
        maintenance.start()
        self._stack.push_async_callback(maintenance.stop)
        orphans = self._orphans = OrphanScanner(
            OrphanServices(
                objects=objects,
                objects_source=self._plugins.source(WAL_OBJECT_STORE, self._loaded.plugins, self._context),
                object_prefix=self.config.diskless_wal_object_prefix,
                snapshot_prefix=snapshot_prefix(self.config),
                detection=self._plugins.create(ORPHAN_DETECTION, self._loaded.plugins, self._context),
                shards=directory.coordinators,
                shards_in_use=partial(shards_in_use, coordinators.cluster),
                scans_here=lambda: coordinators.cluster.leading,
                grace_period_ms=self.config.diskless_coordinator_orphan_scan_grace_period_ms,
                clock=self._clock,
                metrics=self.metrics,
            ),
            self.config.diskless_coordinator_orphan_scan_interval_ms,
        )
        self._run_until_stopped(orphans.run, "orphan scan")

    async def _start_tiered_storage(
        self,
        cluster_id: str,
        coordinators: Coordinators,
        objects: WalObjectStore,
        topics: Topics,
        reader: ObjectReader,
        positions: OffsetRangeCheck,
    ) -> TieredStorage:
        parts = NodeParts(
            loaded=self._loaded,
            plugins=self._plugins,
            context=self._context,
            cluster_id=cluster_id,
            coordinators=coordinators,
            topics=topics,
            objects=objects,
            reader=reader,
            positions=positions,
            clock=self._clock,
            metrics=self.metrics,
        )
        tiered = self._tiered = await start_tiered_storage(parts, self._stack)
        for name, loop in tiered.loops.items():
            self._run_until_stopped(loop, name)
        return tiered

    # --- serving -------------------------------------------------------------------------------------------------

    async def _serve(self, services: Services) -> None:
        clients = self._listening.client_server(
            ApiDispatcher(services, CLIENT_APIS),
            services.configs.max_connections,
            services.writer.backlog.wait_if_full,
        )
        servers = {listener.name: clients for listener in self.config.listeners}
        for_brokers = self.config.inter_broker_listener_name
        if for_brokers is not None:
            servers[for_brokers] = self._listening.peer_server(ApiDispatcher(services, INTER_BROKER_APIS))
        self._stack.push_async_callback(self._listening.stop)
        await self._listening.start(servers)
        if for_brokers is not None:
            own = self.endpoints[for_brokers]
            self.peers.learn(own.node_id, PeerAddress(own.host, own.port))
        self._is_serving = True
        self._stack.push_async_callback(self._stop_serving, services)

    async def _stop_serving(self, services: Services) -> None:
        self._is_serving = False
        self._listening.refuse_clients()
        services.purgatory.close()
        await services.groups.stop()
        try:
            async with asyncio.timeout(COMMIT_S):
                await services.writer.drain()
        except TimeoutError:
            _log.warning("what could not be stored in time is given up: its producers have no answer and send it again")
            services.writer.abort()
        await self._listening.end_clients()
