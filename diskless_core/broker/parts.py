"""The parts of a broker, put together: all but its sockets and its plugins.

`Node` gives them the backends that its plugins make, and TCP; the simulation gives them others.

A part is in the `part.py` of its room: it takes its settings from a `BrokerConfig`, and its neighbours from whoever
makes it. Here the neighbours of each are found among the others. A new part is a field of `BrokerParts` and a paragraph
in `start_parts`, after the parts that it stands on. What handlers need of it goes into `Services`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import structlog

from diskless_core.background import Background, end_backend
from diskless_core.broker import features, followed_shards
from diskless_core.broker.auto_creation import AutoCreation
from diskless_core.broker.awaited_objects import AwaitedObjects, standing_aside, standing_aside_while_restoring
from diskless_core.broker.cluster_catch_up import ClusterCatchUp
from diskless_core.broker.cluster_identity import cluster_id_of
from diskless_core.broker.cluster_view import ClusterSight
from diskless_core.broker.coordinators import Coordinators, ShardSettings, new_counts, shard_counts
from diskless_core.broker.endpoint import Endpoint
from diskless_core.broker.errors import NodeIdRetiredError, StartError
from diskless_core.broker.fenced_brokers import FencedBrokers
from diskless_core.broker.forwarding import Forwarding
from diskless_core.broker.shard_copies import AllShardCopies
from diskless_core.broker.shard_watch import ShardWatch
from diskless_core.broker.shared_log import missing_listener
from diskless_core.broker.starting import EarlyAnswers
from diskless_core.broker.storage_probe import StorageProbe, probe_prefix
from diskless_core.clock import Clock
from diskless_core.clock_watch import ClockWatch
from diskless_core.cluster import feature_levels, group_configs, topic_configs
from diskless_core.cluster.client_racks import ClientRacks
from diskless_core.cluster.config_layers import BrokerSettings
from diskless_core.cluster.configs import Configs
from diskless_core.cluster.controller import Controller, ControllerNeighbours
from diskless_core.cluster.gateways import GatewayNeighbours, ProduceGateways
from diskless_core.cluster.membership import member, namesake
from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec
from diskless_core.cluster.membership.part import Membership, MembershipNeighbours, MembershipSettings
from diskless_core.cluster.membership.peers import RegisteredPeers
from diskless_core.cluster.membership.rack import RackMembers
from diskless_core.cluster.part import Cluster, ClusterNeighbours
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.topics import Topics
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.listeners import SECURITY_PROTOCOLS
from diskless_core.config.placement import check_shards, may_lead
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.feeds import ShardFeeds
from diskless_core.coordinator.leader import Hold
from diskless_core.coordinator.peers import AskOnce, PeerTransport
from diskless_core.coordinator.shard import ShardServices
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.coordinator.upkeep import Upkeep
from diskless_core.diskless.clients import CoordinatorClients
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.producer_expiry import ExpirationRules, ProducerExpiry
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.service import CoordinatorService
from diskless_core.fetch.part import Fetch, FetchNeighbours, FetchSettings, Rack, SegmentReads
from diskless_core.files.part import Files, FilesNeighbours, FilesSettings
from diskless_core.files.retention import OFF, RetentionRules
from diskless_core.files.retention_worker import RulesOf
from diskless_core.groups.coordinators import GroupCoordinators
from diskless_core.groups.settings import ConsumerTimes, ConsumerTimesOf, GroupSettings
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.coordinator_store import CoordinatorStore
from diskless_core.plugin.gateway_placement import GatewayPlacement, LiveBroker
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.plugin.orphan_detection import OrphanDetection
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.produce.part import Produce, ProduceNeighbours, ProduceSettings
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FeatureLevels
from diskless_core.quotas.managers import QuotaManagers
from diskless_core.quotas.rate import Window
from diskless_core.shards import GROUPS
from diskless_core.tiering.part import CompactionForbiddenError, Tiering, TieringBackends, TieringNeighbours

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerBackends:
    """What a broker stands on. `start_parts` starts and stops them.

    Attributes:
        objects_source: makes further stores like `objects`.
    """

    log: CoordinatorLog
    store: CoordinatorStore
    objects: WalObjectStore
    objects_source: Callable[[], WalObjectStore]
    offset_assignment: OffsetAssignment
    gateway_placement: GatewayPlacement
    orphan_detection: OrphanDetection
    tiering: TieringBackends


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a broker finds around it: the other nodes, time, and where it is measured.

    Attributes:
        levels: what its build knows of feature levels.
        allocation_id: what the broker asked the cluster for its node id with; None where that was configured.
        new_transport: makes one beside `transport`, for requests that wait long: answers come in the order of requests.
        membership_transport: for heartbeats alone: by it the controller sees that this process has ended.
        ask_once: asks whoever listens at an address.
        lost_brokers: which other brokers have most likely just ended, as this one sees it.
        serve_brokers: answers other brokers by the inter-broker listener from now on. It is called before this broker
            registers, where others can have the same log; what it is given cannot answer everything yet.
        endpoints: where this broker is reached, by the names of its listeners.
        http: where tools of other machines reach its HTTP interface; None where they do not.
    """

    transport: PeerTransport
    new_transport: Callable[[], PeerTransport]
    membership_transport: PeerTransport
    ask_once: AskOnce
    lost_brokers: Callable[[], frozenset[int]]
    serve_brokers: Callable[[EarlyAnswers], Awaitable[None]]
    peers: RegisteredPeers
    endpoints: Mapping[str, Endpoint]
    clock: Clock
    metrics: Metrics
    levels: FeatureLevels = BUILD_LEVELS
    allocation_id: uuid.UUID | None = None
    http: BrokerListener | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """A broker without sockets, running.

    Attributes:
        clients: the Diskless coordinators, wherever they are led.
        coordinator_service: those of this node, for other nodes.
        feeds: all shards of this node, for the replicas of other nodes.
        purgatory: where requests wait for what is committed.
        sight: the cluster, for tools.
        forwarding: the way to the controller.
        auto_creation: creates topics that clients ask for.
        client_racks: in which racks clients are.
        gateways: whom clients are told to produce to.
    """

    cluster_id: str
    coordinators: Coordinators
    shard_copies: AllShardCopies
    fenced_brokers: FencedBrokers
    sight: ClusterSight
    membership: Membership
    clients: CoordinatorClients
    coordinator_service: CoordinatorService
    feeds: ShardFeeds
    purgatory: Purgatory
    cluster: Cluster
    forwarding: Forwarding
    auto_creation: AutoCreation
    client_racks: ClientRacks
    gateways: ProduceGateways
    quotas: QuotaManagers
    produce: Produce
    fetch: Fetch
    files: Files
    tiering: Tiering
    groups: GroupCoordinators

    async def settle_requests(self) -> None:
        """Before a clean stop: whoever waits for data or a rebalance is let go, and what was produced is committed.

        Connections have to stay until then, so that clients hear of it.
        """
        self.purgatory.close()
        self.feeds.close()
        await self.groups.stop()
        await self.produce.stop()


async def start_parts(
    config: BrokerConfig, backends: BrokerBackends, around: Surroundings, stack: AsyncExitStack
) -> BrokerParts:
    """Make the parts and start them, each after those that it stands on; `stack` stops them in reverse.

    Clients that still wait then get no answer; see `BrokerParts.settle_requests`.

    Raises:
        StartError: the configuration does not fit what there is.
        CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError, CoordinatorError, RemoteStorageError,
        RemoteLogMetadataError: a backend cannot start.
    """
    node_id, clock, metrics = config.node_id, around.clock, around.metrics
    awaited = AwaitedObjects(config.diskless_startup_timeout_ms, clock)
    end_objects = partial(end_backend, "wal_object_store", backends.objects)
    await _start_backend(lambda: awaited.do(backends.objects.start), end_objects, stack)
    incarnation_id = clock.new_uuid()
    coordinators = await _start_coordinators(config, incarnation_id, backends, around, stack)
    replicas = coordinators.diskless
    clients = CoordinatorClients(node_id, replicas, around.transport, around.peers, around.new_transport)
    stack.push_async_callback(clients.stop)
    counts = new_counts(config, coordinators.log)
    cluster_id = await cluster_id_of(config, coordinators.cluster, backends.objects, awaited, clock, counts)
    with standing_aside(coordinators.cluster):
        await _start_groups(config, coordinators)
    loops = Background()
    stack.push_async_callback(loops.stop)
    _look_after_shards(config, coordinators, backends, around, loops)
    probe = _storage_probe(config, cluster_id, coordinators, backends, clock)
    if backends.log.is_shared:
        loops.run(probe.write_objects, "probe of WAL objects")
        await awaited.do(probe.read_object)
    purgatory = Purgatory()
    feeds = ShardFeeds(coordinators.all(), clock)
    coordinator_service = CoordinatorService(
        node_id,
        replicas,
        around.peers,
        purgatory,
        feeds,
        clock,
        object_prefix=config.diskless_wal_object_prefix,
    )
    membership = _membership(config, incarnation_id, cluster_id, coordinators, around)
    stack.push_async_callback(membership.stop)
    if backends.log.is_shared:
        await around.serve_brokers(EarlyAnswers(membership=membership, coordinators=coordinator_service))
    await _become_member(membership, coordinators, clock)
    if coordinators.nominated is not None:
        loops.run(_controller(config, coordinators, membership, clock).run, "controller")
    # the others may wait for brokers that are still to start
    own = [one for one in coordinators.all() if may_lead(config.diskless_coordinator_placement, one.id, node_id)]
    await coordinators.until_serving(own)
    quotas = QuotaManagers(
        Window(samples=config.quota_window_num, sample_ms=config.quota_window_size_seconds * 1000), clock
    )
    cluster = Cluster(
        BrokerSettings.of(config),
        ClusterNeighbours(
            node_id=node_id,
            shard=coordinators.cluster,
            replicas=replicas,
            coordinators=clients.coordinators,
            transport=around.new_transport(),
            broker_epoch=lambda: membership.epoch,
            apply_quotas=quotas.replace,
            clock=clock,
            having=coordinators.having,
        ),
    )
    stack.push_async_callback(cluster.stop)
    topics = cluster.topics
    forwarding = Forwarding(
        node_id, coordinators.cluster, around.new_transport(), clock, max_bytes=config.socket_request_max_bytes // 2
    )
    auto_creation = AutoCreation(topics, forwarding)
    stack.push_async_callback(auto_creation.stop)
    tiering = _tiering(
        config,
        backends.tiering,
        TieringNeighbours(
            node_id=node_id,
            cluster_id=cluster_id,
            cluster=coordinators.cluster,
            shards=replicas,
            log=backends.log,
            topics=topics,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            clock=clock,
            clock_watch=coordinators.cluster.clock_watch,
            metrics=metrics,
            having_all=coordinators.having_all,
        ),
    )
    stack.push_async_callback(tiering.stop)
    await tiering.start()
    if backends.log.is_shared and not backends.tiering.remote_storage.is_broker_local:
        loops.run(partial(probe.write_segments, tiering.remote_storage), "probe of remote storage")
        await awaited.do(partial(probe.read_segment, tiering.remote_storage))
    fetch = Fetch(
        FetchSettings.of(config),
        FetchNeighbours(
            objects=backends.objects,
            shards=replicas,
            replica_of=topics.replica_of,
            coordinator_of=topics.coordinator_of,
            purgatory=purgatory,
            segments=SegmentReads(reader=tiering.reader, times=tiering.times, is_tiered=tiering.is_tiered),
            rack=_rack(config, coordinators, membership, around),
            clients=clients if coordinators.follows is not None else None,
            want=coordinators.want,
            clock=clock,
            metrics=metrics,
        ),
    )
    stack.push_async_callback(fetch.stop)
    fetch.start()
    produce = Produce(
        ProduceSettings.of(config, requests_are_billed=backends.objects.requests_are_billed),
        ProduceNeighbours(
            node_id=node_id,
            objects=backends.objects,
            coordinators=clients.coordinators,
            shard_of=topics.shard_of,
            is_awaited=topics.is_awaited,
            on_uploaded=fetch.reader.uploaded,
            is_one_of_many=backends.log.is_shared,
            new_object_id=fetch.new_object_id,
            clock=clock,
            metrics=metrics,
        ),
    )
    membership.bucket_is_ok = lambda: produce.failing is None and fetch.failing is None
    files = Files(
        FilesSettings.of(config),
        FilesNeighbours(
            objects=backends.objects,
            objects_source=backends.objects_source,
            detection=backends.orphan_detection,
            shards=replicas,
            coordinators=clients.coordinators,
            shards_in_use=coordinators.cluster.shards_in_use,
            scans_here=lambda: coordinators.cluster.leading,
            rules_of=_retention_rules(topics),
            on_deleted=fetch.reader.deleted,
            clock=clock,
            clock_watch=coordinators.cluster.clock_watch,
            metrics=metrics,
        ),
    )
    stack.push_async_callback(files.stop)
    files.start()
    newest = ClusterCatchUp(node_id, coordinators.cluster, around.new_transport(), clock)
    stack.push_async_callback(newest.stop)
    groups = GroupCoordinators(
        coordinators.groups, clock, GroupSettings.of(config), _consumer_times(cluster.configs), newest.catch_up
    )
    await groups.start()
    stack.push_async_callback(groups.stop)
    topics.on_deletion(groups.topics_deleted)
    await cluster.start()
    gateways = ProduceGateways(
        GatewayNeighbours(
            placement=backends.gateway_placement,
            itself=LiveBroker(node_id=node_id, rack=config.broker_rack),
            brokers=membership.brokers,
            lost=around.lost_brokers,
            cluster=coordinators.cluster,
            coordinators=replicas,
            metrics=metrics,
        )
    )
    copies = AllShardCopies(node_id, coordinators, around.peers, around.new_transport())
    fenced_brokers = FencedBrokers(node_id, membership.registrar, membership.brokers, around.new_transport(), clock)
    return BrokerParts(
        cluster_id=cluster_id,
        coordinators=coordinators,
        shard_copies=copies,
        fenced_brokers=fenced_brokers,
        sight=ClusterSight(node_id, cluster_id, coordinators, membership.brokers, copies, fenced_brokers),
        membership=membership,
        clients=clients,
        coordinator_service=coordinator_service,
        feeds=feeds,
        purgatory=purgatory,
        cluster=cluster,
        forwarding=forwarding,
        auto_creation=auto_creation,
        client_racks=ClientRacks(config),
        gateways=gateways,
        quotas=quotas,
        produce=produce,
        fetch=fetch,
        files=files,
        tiering=tiering,
        groups=groups,
    )


async def _start_backend(
    start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]], stack: AsyncExitStack
) -> None:
    """Start it, for `stack` to stop it. One that cannot start lets go of what it has, and its error is raised."""
    try:
        await start()
    except BaseException:
        try:
            await stop()
        except Exception as error:
            _log.warning("a backend that did not start could not be stopped either", error=str(error))
        raise
    stack.push_async_callback(stop)


def _broker_spec(config: BrokerConfig, incarnation_id: uuid.UUID, around: Surroundings) -> BrokerSpec:
    protocols = {entry.name: entry.protocol for entry in config.listener_security_protocol_map}
    listeners = [
        BrokerListener(name, endpoint.host, endpoint.port, SECURITY_PROTOCOLS.index(protocols[name]))
        for name, endpoint in around.endpoints.items()
    ]
    if around.http is not None:
        listeners.append(around.http)
    return BrokerSpec(
        node_id=config.node_id,
        incarnation_id=incarnation_id,
        listeners=tuple(listeners),
        rack=config.broker_rack,
        features=features.supported(around.levels.supported),
    )


async def _start_coordinators(
    config: BrokerConfig,
    incarnation_id: uuid.UUID,
    backends: BrokerBackends,
    around: Surroundings,
    stack: AsyncExitStack,
) -> Coordinators:
    missing = missing_listener(backends.log, config)
    if missing is not None:
        raise StartError(missing)
    await _start_backend(backends.log.start, backends.log.stop, stack)
    snapshots = Snapshots.of(config, backends.objects, around.clock, around.levels)
    services = ShardServices(
        node_id=config.node_id,
        clock=around.clock,
        log=backends.log,
        store=backends.store,
        snapshots=snapshots,
        metrics=around.metrics,
        may_lead=lambda shard: may_lead(config.diskless_coordinator_placement, shard, config.node_id),
        levels=around.levels,
        new_transport=around.new_transport,
        clock_watch=ClockWatch(around.clock),
    )
    rules = CommitRules(assignment=backends.offset_assignment)
    settings = ShardSettings(
        counts=shard_counts(config),
        commit_rules=rules,
        kept_s=followed_shards.KEPT_SESSIONS * config.broker_session_timeout_ms / 1000,
    )
    coordinators = Coordinators(services, settings)
    stack.push_async_callback(coordinators.stop)
    around.peers.follow(coordinators.cluster)
    if backends.log.is_shared:
        coordinators.cluster.stand_back(Hold.NAMESAKE, "another process may have this node id")
    await coordinators.start_following()
    if backends.log.is_shared:
        await _require_no_namesake(_broker_spec(config, incarnation_id, around), coordinators.cluster, around)
        coordinators.cluster.stand(Hold.NAMESAKE)
    await coordinators.until_serving([coordinators.cluster])
    return coordinators


async def _start_groups(config: BrokerConfig, coordinators: Coordinators) -> None:
    """Start the groups shards, as many as the cluster has."""
    count = coordinators.cluster.recorded_count(GROUPS)
    wanted = config.offsets_topic_num_partitions
    if wanted not in (None, count):
        raise StartError(
            f"offsets.topic.num.partitions is {wanted}, but this cluster has {count} group coordinators, and groups "
            f"stay with them. Set it to {count}, or leave it out; `diskless migrate-log` can change the number"
        )
    try:
        check_shards(config.diskless_coordinator_placement, {"offsets_topic_num_partitions": count})
    except ValueError as error:
        raise StartError(f"diskless.coordinator.placement is wrong: {error}") from None
    await coordinators.add(GROUPS, count)


def _look_after_shards(
    config: BrokerConfig, coordinators: Coordinators, backends: BrokerBackends, around: Surroundings, loops: Background
) -> None:
    snapshots = Snapshots.of(config, backends.objects, around.clock, around.levels)
    loops.run(ShardWatch(coordinators, around.metrics).run, "figures of shards")
    if coordinators.follows is not None:
        for shard in coordinators.followed_by_nomination():
            loops.run(partial(coordinators.follows.look_after, shard), f"{shard.id} copy")
    for shard in coordinators.all():
        snapshotter = Snapshotter(shard, backends.log, snapshots, SnapshotRules.of(config), around.clock)
        loops.run(snapshotter.run, f"{shard.id} snapshots")
    others = [shard for shard in coordinators.all() if shard is not coordinators.cluster]
    upkeep = Upkeep(coordinators.cluster, others, around.clock)
    for shard in others:
        loops.run(partial(upkeep.follow, shard), f"{shard.id} upkeep")
    for diskless in coordinators.diskless.values():
        expiry = ProducerExpiry(diskless, ExpirationRules.of(config), around.clock)
        loops.run(expiry.run, f"{diskless.id} producer expiration")


async def _require_no_namesake(spec: BrokerSpec, shard: ClusterShard, around: Surroundings) -> None:
    await shard.until_caught_up()
    calls = PeerCalls(around.new_transport())
    try:
        await namesake.require_none(spec, around.allocation_id, shard, calls)
    except member.MembershipRefusedError as error:
        raise StartError(f"the cluster does not take this broker: {error}") from None


def _membership(
    config: BrokerConfig, incarnation_id: uuid.UUID, cluster_id: str, coordinators: Coordinators, around: Surroundings
) -> Membership:
    membership = Membership(
        MembershipSettings.of(config, around.allocation_id),
        MembershipNeighbours(
            cluster_id=cluster_id,
            shard=coordinators.cluster,
            shards=coordinators.all(),
            is_shared=coordinators.log.is_shared,
            hands_over=coordinators.nominated is not None,
            transport=around.membership_transport,
            ask_once=around.ask_once,
            spec=_broker_spec(config, incarnation_id, around),
            log_is_ok=lambda: coordinators.log_failure is None,
            clock=around.clock,
            metrics=around.metrics,
            objection=feature_levels.object_to,
        ),
    )
    if coordinators.nominated is not None:
        coordinators.nominated.require_membership(config.node_id, membership.is_member)
    return membership


async def _become_member(membership: Membership, coordinators: Coordinators, clock: Clock) -> None:
    """Register this broker. It is live from then on: coordinators may come to be led by it."""
    try:
        async with standing_aside_while_restoring(coordinators.cluster, coordinators.all(), clock):
            await membership.start()
    except member.NodeIdRetiredError as error:
        raise NodeIdRetiredError(f"the cluster does not take this broker: {error}") from None
    except member.MembershipRefusedError as error:
        raise StartError(f"the cluster does not take this broker: {error}") from None


def _rack(
    config: BrokerConfig, coordinators: Coordinators, membership: Membership, around: Surroundings
) -> Rack | None:
    if not coordinators.log.is_shared:
        return None
    members = RackMembers(coordinators.cluster, membership.brokers, config.broker_rack)
    return Rack(node_id=config.node_id, live=members.live, new_transport=around.new_transport)


def _storage_probe(
    config: BrokerConfig, cluster_id: str, coordinators: Coordinators, backends: BrokerBackends, clock: Clock
) -> StorageProbe:
    return StorageProbe(
        backends.objects,
        coordinators.cluster,
        clock,
        prefix=probe_prefix(config.diskless_wal_object_prefix),
        node_id=config.node_id,
        cluster_id=cluster_id,
        has_segments=not backends.tiering.remote_storage.is_broker_local,
    )


def _controller(config: BrokerConfig, coordinators: Coordinators, membership: Membership, clock: Clock) -> Controller:
    controller = Controller(
        ControllerNeighbours(
            cluster=coordinators.cluster,
            shards={shard.id: shard for shard in coordinators.all() if shard is not coordinators.cluster},
            brokers=membership.registrar.live,
            may_lead=partial(may_lead, config.diskless_coordinator_placement),
            balances=config.auto_leader_rebalance_enable,
            clock=clock,
        )
    )
    membership.registrar.on_change(controller.look)
    return controller


def _tiering(config: BrokerConfig, backends: TieringBackends, neighbours: TieringNeighbours) -> Tiering:
    try:
        return Tiering(config, backends, neighbours)
    except CompactionForbiddenError as error:
        raise StartError(str(error)) from None


def _retention_rules(topics: Topics) -> RulesOf:
    """What retention a partition's topic asks for."""

    def rules_of(partition: PartitionKey) -> RetentionRules | None:
        info = topics.by_id(uuid.UUID(bytes=partition.topic_id))
        if info is None:
            return None
        settings = info.effective_configs
        if not topic_configs.removes_old_records(settings):
            return RetentionRules(retention_ms=OFF, retention_bytes=OFF)
        return RetentionRules(
            retention_ms=int(settings["retention.ms"]),
            retention_bytes=max(OFF, int(settings["retention.bytes"])),
        )

    return rules_of


def _consumer_times(configs: Configs) -> ConsumerTimesOf:
    """What a group's own settings ask for, or else the broker's."""
    return lambda group_id: ConsumerTimes(
        session_timeout_ms=configs.number_of_group(group_id, group_configs.SESSION_TIMEOUT),
        heartbeat_interval_ms=configs.number_of_group(group_id, group_configs.HEARTBEAT_INTERVAL),
    )
