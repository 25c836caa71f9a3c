"""Several whole brokers in one process: one log, one bucket, and TCP over loopback between them and to clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from diskless_core.broker.node import Node
from diskless_core.clock import SystemClock
from diskless_core.config.load import load_config
from diskless_core.coordinator.peers import AnswerLostError, PeerRequest, PeerTransport
from diskless_core.plugin_host.discovery import installed_entry_points
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import COORDINATOR_LOG
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FeatureLevels
from diskless_core.shards import DISKLESS, SHARD_KINDS
from diskless_core.testing.fakes.log import SharedLog
from tests.support.wire import WireClient

R = TypeVar("R")

LIMIT_S = 300.0
CLIENTS, BROKERS = "PLAINTEXT", "INTERNAL"


class OnSharedLog(PluginManager):
    """The installed plugins, but for the coordinator log: every node has the same."""

    def __init__(self, shared: SharedLog, node_id: int) -> None:
        super().__init__(installed_entry_points())
        self._log = shared.node(node_id)

    def create(self, noun: Any, selected: Any, context_factory: Any) -> Any:
        if noun is COORDINATOR_LOG:
            return self._log
        return super().create(noun, selected, context_factory)


class _Gate:
    """Replicas of a node that follow others get no answers while the node is among those that lag."""

    def __init__(self, transport: PeerTransport, lagging: set[int], node_id: int) -> None:
        self._transport = transport
        self._lagging = lagging
        self._node_id = node_id

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        answer = await self._transport.send(node_id, request, timeout_s)
        if self._node_id in self._lagging:
            raise AnswerLostError("the node lags")
        return answer


class Cluster:
    """Brokers by node id. The first one leads the cluster's and the groups' shards, each Diskless shard whom `leaders`
    names.

    Args:
        nominates: whether the first one nominates leaders of all other shards instead, as the controller.

    Attributes:
        begun: all brokers whose start was begun, by node id.
    """

    def __init__(
        self,
        folder: Path,
        leaders: Mapping[int, int],
        node_ids: tuple[int, ...] = (1, 2),
        properties: Mapping[str, str] | None = None,
        *,
        nominates: bool = False,
    ) -> None:
        self._folder = folder
        self._properties = properties or {}
        self.shared = SharedLog(nominates_all_shards=not nominates)
        self.nodes: dict[int, Node] = {}
        self.begun: dict[int, Node] = {}
        self._node_ids = node_ids
        self._shards = len(leaders)
        self._lagging: set[int] = set()
        for kind in SHARD_KINDS:
            if kind is not DISKLESS:
                self.shared.set_leader(kind.shard(0), node_ids[0])
        for index, leader in leaders.items():
            self.lead(index, leader)

    def lead(self, shard: int, node_id: int) -> None:
        """From now on the log hints that this node leads a Diskless shard."""
        self.shared.set_leader(DISKLESS.shard(shard), node_id)

    def lag(self, node_id: int) -> None:
        """A node hears nothing new of any shard until `catch_up`. Whom it asks for something else answers it."""
        self._lagging.add(node_id)
        self.shared.pause_reads(node_id)

    def catch_up(self, node_id: int) -> None:
        """End what `lag` began."""
        self._lagging.discard(node_id)
        self.shared.resume_reads(node_id)

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(self.start(node_id) for node_id in self._node_ids))
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in reversed(self.nodes.values()):
            await node.stop()

    async def stop(self, node_id: int) -> None:
        """Stop a broker in good order."""
        await self.nodes.pop(node_id).stop()

    async def start(
        self,
        node_id: int,
        levels: FeatureLevels = BUILD_LEVELS,
        folder: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Start a broker, in a folder of its own or in another one. What it raises is passed on."""
        properties = {
            "node.id": str(node_id),
            "broker.rack": f"rack-{node_id}",
            "log.dirs": str(self._folder / (folder or f"node-{node_id}")),
            "listeners": f"{CLIENTS}://127.0.0.1:0,{BROKERS}://127.0.0.1:0",
            "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:PLAINTEXT",
            "inter.broker.listener.name": BROKERS,
            "admin.listener": "",
            "diskless.metadata.topic.num.partitions": str(self._shards),
            "offsets.topic.num.partitions": "1",
            "wal_object_store.fsspec.url": f"file://{self._folder / 'bucket'}",
            **self._properties,
            **(properties or {}),
        }
        plugins = OnSharedLog(self.shared, node_id)
        loaded = load_config(None, [f"{key}={value}" for key, value in properties.items()], {}, plugins)
        node = self.begun[node_id] = Node(loaded, plugins, SystemClock(), levels)
        await node.start()
        self.nodes[node_id] = node
        assert node._parts is not None
        for shard in node._parts.coordinators.all():
            calls = shard._following._calls
            assert calls is not None
            calls._transport = _Gate(calls._transport, self._lagging, node_id)

    def connect(self, node_id: int, listener: str = CLIENTS) -> WireClient:
        """A raw connection, which blocks: use it in `in_thread`."""
        endpoint = self.nodes[node_id].endpoints[listener]
        return WireClient(endpoint.host, endpoint.port)

    def leads(self, node_id: int, shard: int) -> bool:
        """Whether a node leads a Diskless shard, as far as it knows."""
        parts = self.nodes[node_id]._parts
        return parts is not None and parts.coordinators.diskless[shard].leading

    def break_connections(self, node_id: int) -> int:
        """Reset all connections that other brokers have to a node, whatever is under way. How many there were."""
        connections = list(self.nodes[node_id]._listening._servers[BROKERS].connections)
        for connection in connections:
            assert connection._transport is not None
            connection._transport.abort()
        return len(connections)

    def answered(self, node_id: int, api: str) -> int:
        """How many requests of an API a node has answered."""
        name, labels = "diskless_request_seconds_count", {"api": api}
        return int(self.nodes[node_id].metrics.registry.get_sample_value(name, labels) or 0)


async def in_thread(work: Callable[[], R]) -> R:
    """Run what talks over blocking sockets beside the brokers."""
    return await asyncio.wait_for(asyncio.to_thread(work), 4 * LIMIT_S)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it does not come to hold"
        await asyncio.sleep(0.01)
