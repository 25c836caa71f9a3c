"""One broker process of a simulated world: the parts of a broker on the world's log, bucket and network."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, lru_cache
from typing import Any, Protocol, TypeVar

from diskless_core.broker.contexts import plugin_contexts
from diskless_core.broker.endpoint import Endpoint
from diskless_core.broker.parts import BrokerBackends, BrokerParts, Surroundings, start_parts
from diskless_core.broker.starting import AT_ONCE, EarlyAnswers
from diskless_core.cluster import operations
from diskless_core.cluster.membership.peers import RegisteredPeers
from diskless_core.cluster.membership.service import MEMBERSHIP_REQUESTS
from diskless_core.cluster.nominations import Electorate
from diskless_core.cluster.tables import NOMINATIONS, nomination_key
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.listeners import Listener, ListenerProtocol
from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError
from diskless_core.coordinator.peers import AnswerLostError, PeerAddress, PeerGoneError, PeerRequest
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.diskless.commands import BatchResult, DeletedRecords, PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.query import FetchedPartition, FetchPartition, FetchQuery
from diskless_core.groups.service import Client
from diskless_core.groups.topics import TOPIC_IDS_SINCE
from diskless_core.metrics import Metrics
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanSearch
from diskless_core.plugin.segment_compaction import BackendSources
from diskless_core.plugin.shard import ShardId
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.validation import validate
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DisklessFollowShardRequest,
    DisklessReadObjectRequest,
    EnvelopeRequest,
)
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from diskless_core.tiering.compaction import CompactionRequest
from diskless_core.tiering.part import TieringBackends
from diskless_core.tiering.retrying import Retries
from diskless_tiering.config import CoordinatorMetadataSettings, InlineSettings
from diskless_tiering.coordinator_metadata import CoordinatorMetadata
from diskless_tiering.inline import InlineCompaction
from tests.simulation.bucket import Bucket
from tests.simulation.checker import OBJECT_PREFIX
from tests.simulation.front_desk import FrontDesk
from tests.simulation.garbling import Garbler
from tests.simulation.history import History
from tests.simulation.logs import Host, WorldLog
from tests.simulation.network import Network, NetworkError
from tests.simulation.processes import Process, ProcessLoop
from tests.simulation.scenario import WEEK_MS, Scenario
from tests.simulation.segments import BucketSegments
from tests.support.gateways import placement
from tests.support.shards import Sequential
from tests.support.virtual_time import VirtualClock

T = TypeVar("T")

CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6
ADMINISTRATION_MS = 4_000
"""How long administrators let the controller take."""

ANSWER_S = 4.0
LEAVE_S = 5.0
CACHE_BYTES = 2_000
PORT = 9093
CLIENTS, BROKERS = "CLIENTS", "BROKERS"


@cache
def shared_metrics() -> Metrics:
    """One registry for all worlds: to make one takes longer than to run a small world."""
    return Metrics()


@lru_cache(maxsize=1)
def settings_of(scenario: Scenario) -> BrokerConfig:
    """The settings of all brokers of a world."""
    config = BrokerConfig(
        listener_security_protocol_map=(
            ListenerProtocol("CLIENTS", "PLAINTEXT"),
            ListenerProtocol(BROKERS, "PLAINTEXT"),
        ),
        listeners=(Listener("CLIENTS", "broker", PORT - 1), Listener(BROKERS, "broker", PORT)),
        inter_broker_listener_name=BROKERS,
        broker_heartbeat_interval_ms=scenario.session_ms // 3,
        broker_session_timeout_ms=scenario.session_ms,
        diskless_metadata_topic_num_partitions=scenario.shards,
        offsets_topic_num_partitions=scenario.shards,
        producer_id_expiration_ms=scenario.producer_expiration_ms,
        producer_id_expiration_check_interval_ms=(
            1_000 if scenario.producers_expire or scenario.clock_behind_ms else 20_000
        ),
        log_message_timestamp_after_max_ms=2 * WEEK_MS,
        diskless_append_commit_interval_ms=max(250, scenario.linger_ms),
        diskless_append_linger_ms=scenario.linger_ms,
        diskless_append_buffer_max_bytes=1_000,
        diskless_fetch_cache_max_bytes=CACHE_BYTES,
        diskless_wal_object_prefix=OBJECT_PREFIX,
        diskless_file_delete_delay_ms=scenario.delete_delay_ms,
        diskless_coordinator_orphan_scan_interval_ms=WEEK_MS,
        group_consumer_min_session_timeout_ms=1_000,
        group_consumer_session_timeout_ms=2_500,
        group_consumer_min_heartbeat_interval_ms=500,
        group_consumer_heartbeat_interval_ms=500,
        remote_log_storage_system_enable=scenario.compaction_interval_ms > 0,
        remote_log_manager_task_interval_ms=scenario.compaction_interval_ms or 5_000,
        remote_log_manager_task_retry_backoff_ms=50,
        remote_log_manager_task_retry_backoff_max_ms=1_000,
        remote_partition_remover_task_interval_ms=15_000,
        log_initial_task_delay_ms=5_000,
        log_retention_check_interval_ms=20_000,
    )
    # A minute, the least that an operator may set, is longer than the story of a world.
    return config.model_copy(update={"diskless_coordinator_orphan_scan_grace_period_ms": scenario.orphan_grace_ms})


class BrokerWorld(Protocol):
    """What a broker finds in the world that it is started in."""

    loop: ProcessLoop
    scenario: Scenario
    log: WorldLog
    bucket: Bucket
    network: Network
    disks: Mapping[int, Disk]
    lagging: set[int]
    garbler: Garbler
    history: History

    def broker(self, node_id: int) -> Broker | None: ...

    def answered(self, key: PartitionKey, result: BatchResult) -> None: ...


class NoSuccessError(CoordinatorError):
    """What an administrator wants is not known to be done."""


class _Listing(OrphanDetection):
    """Every old object is a candidate."""

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        async for page in search.list_objects(search.prefix):
            yield [found.key for found in page if search.is_candidate(found.key)]


class Disk:
    """What survives a process: the coordinator store. It may be lost, or found as it was some time ago."""

    def __init__(self) -> None:
        self.store = MemoryCoordinatorStore()
        self._kept: MemoryCoordinatorStore | None = None

    def keep(self) -> None:
        self._kept = _copied(self.store)

    def lose(self) -> None:
        self.store = MemoryCoordinatorStore()

    def set_back(self) -> None:
        """As it was when it was last kept; lost if it never was."""
        self.store = _copied(self._kept) if self._kept is not None else MemoryCoordinatorStore()


def _copied(store: MemoryCoordinatorStore) -> MemoryCoordinatorStore:
    copied = MemoryCoordinatorStore()
    copied._shards = {shard: kept.copy() for shard, kept in store._shards.items()}
    return copied


class Broker:
    """One life of a broker. The next life of the same node is another object."""

    def __init__(self, world: BrokerWorld, node_id: int, life: int, disk: Disk, source: random.Random) -> None:
        self.node_id = node_id
        self.process: Process = world.loop.process(f"broker-{node_id}.{life}")
        self.clock = VirtualClock(world.loop, source.getrandbits(64))
        self._world = world
        self._config = settings_of(world.scenario).model_copy(update={"node_id": node_id})
        self._objects = world.bucket.client(self.process.name, node_id)
        self._log = world.log.plugin(Host(node_id=node_id, clock=self.clock, objects=self._objects))
        self._store = disk.store
        self._stack = AsyncExitStack()
        self._parts: BrokerParts | None = None
        self._desk: FrontDesk | None = None
        self.early: EarlyAnswers | None = None
        self.ready = asyncio.Event()
        self._refuses_clients = False
        self.has_left = False

    async def start(self) -> None:
        """Start as a process does; `started` says whether it has. It ends by leaving, or by being frozen."""
        transport = _Transport(self._world, self.node_id)
        endpoints = {BROKERS: Endpoint(self.node_id, _host_of(self.node_id), PORT)}
        around = Surroundings(
            transport=transport,
            new_transport=lambda: transport,
            membership_transport=transport,
            ask_once=transport.ask_once,
            lost_brokers=frozenset,
            serve_brokers=self._serve_brokers,
            peers=RegisteredPeers(self.node_id, BROKERS),
            endpoints=endpoints,
            clock=self.clock,
            metrics=shared_metrics(),
        )
        self._parts = await start_parts(self._config, self._backends(), around, self._stack)
        self._desk = FrontDesk(
            self._config, self._parts, self.clock, around.metrics, endpoints, clients=CLIENTS, brokers=BROKERS
        )
        self.ready.set()

    async def _serve_brokers(self, early: EarlyAnswers) -> None:
        self.early = early

    async def leave(self) -> None:
        """Shut down in an orderly way, as `Node.stop` does; `has_left` says when that is done."""
        parts = self.parts
        await parts.membership.leave(LEAVE_S)
        self._refuses_clients = True
        await parts.settle_requests()
        self._parts = self._desk = self.early = None
        await self._stack.aclose()
        self.has_left = True

    async def answer(self, work: Callable[[Broker], Awaitable[T]]) -> T:
        """Do what a client asks for.

        Raises:
            NetworkError: the broker takes no requests any more.
        """
        if self._refuses_clients:
            raise NetworkError(f"connection refused by {self.node_id}")
        return await work(self)

    def _backends(self) -> BrokerBackends:
        remote_storage = BucketSegments(self._objects)
        context = plugin_contexts(self._config, self.clock, node_id=self.node_id)
        engine = InlineCompaction(context("segment_compaction", "inline"), InlineSettings())
        metadata = CoordinatorMetadata(context("remote_log_metadata", "coordinator"), CoordinatorMetadataSettings())
        return BrokerBackends(
            log=self._log,
            store=self._store,
            objects=self._objects,
            objects_source=lambda: self._objects,
            offset_assignment=Sequential(),
            gateway_placement=placement("kip1164"),
            orphan_detection=_Listing(),
            tiering=TieringBackends(
                objects=self._objects,
                remote_storage=remote_storage,
                metadata=metadata,
                sources=BackendSources(
                    objects=lambda: self._objects,
                    remote_storage=lambda: remote_storage,
                    backoff=Retries(self._config, self.clock).backoff,
                ),
                engine_of=lambda name: (name or "inline", engine),
            ),
        )

    @property
    def started(self) -> bool:
        return self._parts is not None

    @property
    def parts(self) -> BrokerParts:
        """Its parts.

        Raises:
            CoordinatorLoadingError: it has not been started.
        """
        if self._parts is None:
            raise CoordinatorLoadingError("the broker is starting")
        return self._parts

    @property
    def desk(self) -> FrontDesk:
        """Its handlers.

        Raises:
            CoordinatorLoadingError: it has not been started.
        """
        if self._desk is None:
            raise CoordinatorLoadingError("the broker is starting")
        return self._desk

    @property
    def shards(self) -> Mapping[int, DisklessShard]:
        """The Diskless shards."""
        return self.parts.coordinators.diskless

    def follows(self, shard_id: ShardId) -> bool:
        """Whether it is to have a copy of a shard."""
        coordinators = self.parts.coordinators
        return self.shard(shard_id).is_followed or coordinators.is_to_follow(shard_id, self.node_id)

    def want(self, shard_id: ShardId) -> None:
        """Have a copy of a shard for a while, as for somebody who asks for what only a copy has."""
        self.parts.coordinators.want(self.shard(shard_id))

    def shard(self, shard_id: ShardId) -> CoordinatorShard[Any]:
        """Any shard."""
        return next(shard for shard in self.parts.coordinators.all() if shard.id == shard_id)

    @property
    def defects(self) -> list[str]:
        if self._parts is None:
            return []
        return [shard.failure for shard in self._parts.coordinators.all() if shard.failure is not None]

    # --- what clients ask for ------------------------------------------------------------------------------------

    async def produce(self, key: PartitionKey, batches: Sequence[bytes]) -> Sequence[BatchResult | BaseException]:
        """Produce requests of one batch each, that came one after the other on one connection."""
        answers = [self._append(key, batch) for batch in batches]
        results = await asyncio.gather(*answers, return_exceptions=True)
        return [result[0] if isinstance(result, Sequence) else result for result in results]

    def _append(self, key: PartitionKey, batch: bytes) -> asyncio.Future[Sequence[BatchResult]]:
        answer: asyncio.Future[Sequence[BatchResult]] = asyncio.get_running_loop().create_future()

        def settle(outcome: Sequence[BatchResult] | BaseException) -> None:
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                self._world.answered(key, outcome[0])
                answer.set_result(outcome)

        info = self.parts.cluster.topics.by_id(uuid.UUID(bytes=key.topic_id))
        if info is None:
            answer.set_result([BatchResult(ErrorCode.UNKNOWN_TOPIC_ID)])
            return answer
        writer = self.parts.produce.writer
        valid = validate(memoryview(batch), info.rules, 9, self.clock.now_ms(), writer.record_checks)
        writer.append(Submission(batches=[(key, valid)], release=lambda: None, settle=settle))
        return answer

    async def fetch(self, key: PartitionKey, offset: int, max_bytes: int) -> FetchedPartition:
        """One Fetch request of one partition, which waits a little when there is nothing."""
        query = FetchQuery(
            partitions=[FetchPartition(key=key, offset=offset, max_bytes=max_bytes)],
            max_bytes=max_bytes,
            min_bytes=1,
            max_wait_ms=500,
        )
        [answer] = await self.parts.fetch.fetcher.fetch(query, [])
        answer.records = [memoryview(bytes(view)) for view in answer.records]
        return answer

    async def list_end(self, key: PartitionKey) -> int | None:
        """ListOffsets of the latest offset; None when there is no such partition."""
        coordinator = self.parts.cluster.topics.coordinator_of(key)
        if coordinator is None:
            return None
        answer = await coordinator.list_offsets(key, -1)
        return answer.offset if answer.error is ErrorCode.NONE else None

    async def new_producer_id(self) -> int:
        """InitProducerId."""
        return await self.parts.cluster.producer_ids.next()

    async def delete_records(self, key: PartitionKey, offset: int) -> DeletedRecords:
        """One DeleteRecords request."""
        coordinator = self.parts.cluster.topics.coordinator_of(key)
        if coordinator is None:
            return DeletedRecords(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return await coordinator.delete_records(key, offset)

    async def group_heartbeat(self, request: Any) -> Any:
        """One ConsumerGroupHeartbeat request."""
        client = Client("simulation", "localhost")
        return await self.parts.groups.of(request.group_id).consumer_group_heartbeat(
            request, 1, client, self.parts.cluster.topics
        )

    async def commit_offsets(self, request: Any) -> Any:
        """One OffsetCommit request, which names topics by id."""
        coordinator = self.parts.groups.of(request.group_id)
        return await coordinator.offset_commit(request, TOPIC_IDS_SINCE, self.parts.cluster.topics)

    async def committed_offset(self, request: Any) -> Any:
        """One OffsetFetch request, which names topics by id."""
        return await self.parts.groups.offset_fetch(request, TOPIC_IDS_SINCE, self.parts.cluster.topics)

    # --- what administrators ask for -----------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> uuid.UUID:
        """CreateTopics, of a topic that may have been created by an earlier request of the same administrator.

        Raises:
            NoSuccessError: it may have been created now, or may yet be.
        """
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=[],
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=ADMINISTRATION_MS, validate_only=False)
        response = await self.desk.of_client(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
        [answer] = response.topics
        if answer.error_code == ErrorCode.NONE:
            created: uuid.UUID = answer.topic_id
            return created
        info = self.parts.cluster.topics.by_name(name)
        if answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and info is not None:
            return info.topic_id
        raise self._no_success("CreateTopics", ErrorCode(answer.error_code))

    async def delete_topic(self, topic_id: uuid.UUID) -> None:
        """DeleteTopics, of a topic that may have been deleted by an earlier request of the same administrator.

        Raises:
            NoSuccessError: it may have been deleted now, or may yet be.
        """
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=ADMINISTRATION_MS
        )
        response = await self.desk.of_client(request, DELETE_TOPICS_VERSION, DeleteTopicsResponse)
        [answer] = response.responses
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
            raise self._no_success("DeleteTopics", ErrorCode(answer.error_code))

    def _no_success(self, asked: str, error: ErrorCode) -> NoSuccessError:
        """What an administrator makes of an error: one after which nobody tries again breaks a promise."""
        told = f"{asked} is answered {error.name}"
        if not error.retriable and error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            self._world.history.violated(told)
        return NoSuccessError(told)

    async def depose(self, shard_id: ShardId) -> None:
        """Nominate another leader of a shard, as the controller that it is."""
        cluster = self.parts.coordinators.cluster
        held = cluster.state.get(NOMINATIONS, nomination_key(shard_id))
        electorate = Electorate(
            shards=[shard_id],
            brokers=self.parts.membership.registrar.live(),
            may_lead=lambda _, node_id: held is None or node_id != held.leader,
        )
        await cluster.submit(lambda command: operations.nominate(command, electorate))

    async def compact(self) -> None:
        """Begin to make segments of all that it leads."""
        self.parts.tiering.compactor.begin(CompactionRequest(everything=True))

    async def scan_for_orphans(self) -> None:
        await self.parts.files.orphans.scan(dry_run=False)

    async def take_snapshot(self, shard_id: ShardId) -> None:
        """Take one of a shard that it leads, and prune its log."""
        snapshots = Snapshots.of(self._config, self._objects, self.clock)
        rules = SnapshotRules(least_bytes=1, max_age_ms=0)
        await Snapshotter(self.shard(shard_id), self._log, snapshots, rules, self.clock).take()


def _host_of(node_id: int) -> str:
    return f"broker-{node_id}"


async def _answer(target: Broker, early: EarlyAnswers, request: PeerRequest) -> bytes:
    """What a broker answers to another one. What it can't answer while it starts waits until it has."""
    if request.api_key in MEMBERSHIP_REQUESTS:
        return await early.membership.service.answer(request)
    if request.api_key in AT_ONCE:
        return await early.coordinators.answer(request)
    await target.ready.wait()
    if not target.started:
        raise NetworkError(f"connection broken by {target.node_id}")
    if request.api_key == DisklessReadObjectRequest.API_KEY:
        return await target.parts.fetch.lender.answer(request)
    if request.api_key == EnvelopeRequest.API_KEY:
        return await target.desk.of_broker(request)
    return await target.parts.coordinator_service.answer(request)


class _Transport:
    """A broker's connections to the others."""

    def __init__(self, world: BrokerWorld, node_id: int) -> None:
        self._world = world
        self._node_id = node_id

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        if request.api_key == DisklessFollowShardRequest.API_KEY:
            return await self._follow(node_id, request, timeout_s)
        if request.api_key == DisklessReadObjectRequest.API_KEY:
            return self._world.garbler.lent(await self._send(node_id, request, timeout_s))
        return await self._send(node_id, request, min(timeout_s, ANSWER_S))

    async def ask_once(self, address: PeerAddress, request: PeerRequest, timeout_s: float) -> bytes:
        node_id = next(one for one in self._world.disks if _host_of(one) == address.host)
        return await self._send(node_id, request, min(timeout_s, ANSWER_S))

    async def _follow(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        if self._node_id in self._world.lagging:
            await asyncio.sleep(timeout_s)
            raise AnswerLostError("nothing new reaches this broker")
        return self._world.garbler.passed_on(await self._send(node_id, request, timeout_s))

    async def _send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        target = self._world.broker(node_id)
        if target is None or target.early is None:
            raise PeerGoneError(f"connection refused by {node_id}")
        broker, early = target, target.early
        try:
            return await self._world.network.ask(
                self._node_id, node_id, broker.process, lambda: _answer(broker, early, request), timeout_s
            )
        except NetworkError as error:
            raise AnswerLostError(str(error)) from error
