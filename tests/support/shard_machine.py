"""The ground of a shard's state machine: replicas on virtual time, the model, and how commands are asked."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from diskless_core.coordinator import shard, shard_store, slices
from diskless_core.diskless import producer_expiry, trimming
from diskless_core.diskless.shard import DisklessShard
from tests.simulation.processes import ProcessLoop
from tests.support.commit_model import CommitModel
from tests.support.shard_cluster import Answered, ReplicaNode, ShardCluster
from tests.support.shard_requests import Requests
from tests.support.shards import EXPIRATION_MS
from tests.support.stores import Disk, MemoryDisk

T = TypeVar("T")

PATIENCE_S = 1000
"""Of virtual time: nothing that clients ask may take longer, whatever goes wrong meanwhile."""

NODES = (1, 2)

SMALL_LIMITS: Sequence[tuple[ModuleType, str, int]] = (
    (trimming, "PAGE_ROWS", 3),
    (producer_expiry, "ENTRY_PRODUCERS", 3),
    (producer_expiry, "LOOK_PRODUCERS", 3),
    (slices, "SLICE_UNITS", 1),
    (shard, "SLICE_LOG_BYTES", 1),
    (shard_store, "PAGE_ROWS", 5),
    (shard_store, "MAX_UNSTORED_ROWS", 150),
)
"""So that a few batches are many pages and slices."""


class Doom(NamedTuple):
    """A node dies at a step of a command that it may have a part in."""

    node_id: int
    step: int


dooms = st.one_of(st.none(), st.none(), st.builds(Doom, st.sampled_from(NODES), st.integers(1, 25)))


class ShardMachine(RuleBasedStateMachine):
    """Commands are sent until they are answered, as the broker does; meanwhile anything may go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner(loop_factory=ProcessLoop)
        loop = self.runner.get_loop()
        assert isinstance(loop, ProcessLoop)
        self.loop = loop
        store_delays = random.Random(0)
        self.loop.executor_delay_s = lambda: store_delays.choice([0.0, 0.0, 0.0, 0.01, 0.4, 1.5])
        self.cluster = ShardCluster(self.loop, {node_id: self.new_disk() for node_id in NODES})
        self.model = CommitModel(EXPIRATION_MS)
        self.requests = Requests()
        self.unreadable = False
        self.is_well = True
        self.small_pages = ExitStack()
        for module, limit, value in SMALL_LIMITS:
            self.small_pages.enter_context(mock.patch.object(module, limit, value))

    def new_disk(self) -> Disk:
        return MemoryDisk()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        self.is_well = False
        done = self.runner.run(asyncio.wait_for(work, PATIENCE_S))
        self.is_well = True
        return done

    def ask(self, command: Callable[[DisklessShard], Awaitable[Any]], doom: Doom | None = None) -> Answered:
        async def asked() -> Answered:
            self.prepare(doom)
            answered = await self.cluster.until_answered(command)
            self.spare()
            return answered

        return self.do(asked())

    def prepare(self, doom: Doom | None) -> None:
        if doom is not None:
            self.cluster.nodes[doom.node_id].dies_after(doom.step)

    def spare(self) -> None:
        for node in self.cluster.nodes.values():
            node.dies_after(None)

    @property
    def now_ms(self) -> int:
        return self.cluster.clock.now_ms()

    def teardown(self) -> None:
        try:
            if self.is_well and self.requests.topic_ids:
                self.converge()
            self.runner.run(self.cluster.stop())
        finally:
            self.loop.thaw_all()
            self.runner.close()
            self.small_pages.close()
            self.folder.cleanup()

    def converge(self) -> None:
        """What has to hold in the end, when all is well."""

    async def work(
        self, node: ReplicaNode, work: Callable[[ReplicaNode], Awaitable[None]], doom: Doom | None = None
    ) -> None:
        """Work of a node on its own account, which may come to nothing."""
        self.prepare(doom)
        await node.attempt(work(node))
        self.spare()

    def set_unreadable(self, unreadable: bool) -> None:
        for node in self.cluster.nodes.values():
            node.store.unreadable = unreadable
