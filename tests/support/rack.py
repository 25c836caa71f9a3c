"""Read paths of several brokers of one rack, in one process: a network between them that lies, dawdles and breaks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from diskless_core.clock import Clock
from diskless_core.coordinator.peers import AnswerLostError, PeerRequest, PeerUnavailableError
from diskless_core.fetch.object_owners import ObjectOwners
from diskless_core.fetch.part import Fetch, FetchNeighbours, FetchSettings, Rack
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.protocol.read_object import ReadObjectAnswer, pack, unpack
from tests.support.produce_path import ProducePath

Garble = Callable[[ReadObjectAnswer], ReadObjectAnswer]


class RackNode:
    """One broker: its cache and reader, its figures, and which brokers it takes for the live ones of its rack."""

    def __init__(self, network: RackNetwork, node_id: int, path: ProducePath, cache_bytes: int) -> None:
        self.node_id = node_id
        self.metrics = Metrics()
        self.rack: Sequence[int] = ()
        self.fetch = Fetch(
            FetchSettings(cache_max_bytes=cache_bytes, read_ahead_max_bytes=cache_bytes // 4, remote_max_wait_ms=500),
            FetchNeighbours(
                objects=path.objects,
                shards={},
                replica_of=path.replica_of,
                coordinator_of=lambda _: path.node.shard,
                purgatory=path.purgatory,
                rack=Rack(node_id=node_id, live=lambda: self.rack, new_transport=lambda: network),
                clock=path.clock,
                metrics=self.metrics,
            ),
        )
        self.reader = self.fetch.reader

    def outcomes(self) -> dict[str, int]:
        """How often it was to ask another broker, by outcome."""
        return _samples(self.metrics, "diskless_peer_reads_total", "outcome")

    def requests(self) -> dict[str, int]:
        """How often others asked it, by outcome."""
        return _samples(self.metrics, "diskless_peer_requests_total", "outcome")


class RackNetwork:
    """Nodes 1 to `size`, and a `PeerTransport` between them. Use it as an asynchronous context manager.

    Attributes:
        sent: requests to each node.
        delay_s: how long a node's answers take.
        down: nodes that cannot be reached.
        garble: what becomes of a node's answers on their way.
        raw: the body that a node sends whatever it is asked.
    """

    def __init__(self, path: ProducePath, size: int = 3, *, cache_bytes: int = 1 << 20) -> None:
        self._clock: Clock = path.clock
        self.sent = Counter[int]()
        self.delay_s: dict[int, float] = {}
        self.down = set[int]()
        self.garble: dict[int, Garble] = {}
        self.raw: dict[int, bytes] = {}
        members = tuple(range(1, size + 1))
        self.nodes = {node_id: RackNode(self, node_id, path, cache_bytes) for node_id in members}
        for node in self.nodes.values():
            node.rack = members
        self.objects: WalObjectStore = path.objects

    async def __aenter__(self) -> RackNetwork:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.fetch.stop()

    def owner_of(self, object_key: str) -> RackNode:
        """The node that reads an object for the others."""
        owner = ObjectOwners(tuple(self.nodes)).owner_of(object_key)
        assert owner is not None
        return self.nodes[owner]

    def others(self, object_key: str) -> list[RackNode]:
        """All others."""
        owner = self.owner_of(object_key)
        return [node for node in self.nodes.values() if node is not owner]

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        self.sent[node_id] += 1
        if node_id in self.down:
            raise PeerUnavailableError("connection refused")
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(self.delay_s.get(node_id, 0.0))
                body = await self.nodes[node_id].fetch.lender.answer(request)
        except TimeoutError:
            raise AnswerLostError(f"no answer within {timeout_s} s") from None
        if node_id in self.raw:
            return self.raw[node_id]
        garble = self.garble.get(node_id)
        return b"".join(pack(garble(unpack(body)))) if garble is not None else body


def _samples(metrics: Metrics, name: str, label: str) -> dict[str, int]:
    return {
        sample.labels[label]: int(sample.value)
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == name
    }
