"""The Diskless coordinators of the cluster, each asked where it is led (KIP-1164, "Leadership and deployment").

The local replica answers while it leads; else the node that the log hints at, or that a peer names when it refuses.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from diskless_core.coordinator.calls import PeerCalls, while_led
from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError, NotCoordinatorError
from diskless_core.coordinator.peers import Peers, PeerTransport
from diskless_core.coordinator.routing import LeaderGuess, whom_to_ask_for_the_leader
from diskless_core.diskless.api import FIND_COORDINATOR_KEY_TYPE, DisklessCoordinator
from diskless_core.diskless.commands import (
    AskedRuns,
    BatchResult,
    CommitFile,
    DeletedRecords,
    FoundRuns,
    HandOver,
    ListedOffset,
    PartitionKey,
)
from diskless_core.diskless.commit_bundles import CommitBundles
from diskless_core.diskless.remote import RemoteCoordinator
from diskless_core.diskless.run_lookup import total_bytes
from diskless_core.diskless.shard import DisklessShard
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import FindCoordinatorRequest

R = TypeVar("R")
Question = Callable[[DisklessCoordinator], Awaitable[R]]

FIND_COORDINATOR_VERSION = 4


class CoordinatorClients:
    """Clients of all Diskless coordinators, by index in `coordinators`.

    Attributes:
        calls: these carry what answers soon or concerns several coordinators.
    """

    def __init__(
        self,
        node_id: int,
        replicas: Mapping[int, DisklessShard],
        transport: PeerTransport,
        peers: Peers,
        new_transport: Callable[[], PeerTransport] | None = None,
    ) -> None:
        self.node_id = node_id
        self.peers = peers
        self.calls = PeerCalls(transport)
        self._calls_of: dict[int, PeerCalls] = {}
        self.commits = CommitBundles(self.calls, self.calls_of)
        self.clients = {index: CoordinatorClient(index, replica, self) for index, replica in replicas.items()}
        self.coordinators: Mapping[int, DisklessCoordinator] = self.clients
        self._new_transport = new_transport or (lambda: transport)

    def calls_of(self, index: int) -> PeerCalls:
        """Calls to one coordinator. They have connections of their own: one that stalls holds up no other's answers."""
        calls = self._calls_of.get(index)
        if calls is None:
            calls = self._calls_of[index] = PeerCalls(self._new_transport())
        return calls

    def new_calls(self, limit_ms: int) -> PeerCalls:
        """Calls by connections of their own: nobody waits behind them. An answer has to come within `limit_ms`."""
        return PeerCalls(self._new_transport(), timeout_ms=limit_ms, transfer_s=0)

    async def stop(self) -> None:
        """Give up what is under way with other nodes."""
        await self.commits.stop()

    async def find_leader(self, shard: int, refused_by: int | None) -> int | None:
        """Ask the peers who leads; None when none of them knows."""
        for peer in whom_to_ask_for_the_leader(refused_by, self.node_id, self.peers.node_ids()):
            request = FindCoordinatorRequest(key_type=FIND_COORDINATOR_KEY_TYPE, coordinator_keys=[str(shard)])
            try:
                response = await self.calls.call(peer, request, FIND_COORDINATOR_VERSION)
            except CoordinatorError:
                continue
            for found in response.coordinators:
                if found.error_code == ErrorCode.NONE:
                    return int(found.node_id)
        return None


class CoordinatorClient:
    """One Diskless coordinator, wherever it is led: a `DisklessCoordinator`."""

    def __init__(self, index: int, replica: DisklessShard, clients: CoordinatorClients) -> None:
        self._index = index
        self._replica = replica
        self._clients = clients
        self._guess = LeaderGuess()

    async def create_partitions(self, topic_id: uuid.UUID, name: str, partitions: Sequence[int]) -> None:
        await self._ask(lambda coordinator: coordinator.create_partitions(topic_id, name, partitions))

    async def delete_topic(self, topic_id: uuid.UUID) -> ErrorCode:
        return await self._ask(lambda coordinator: coordinator.delete_topic(topic_id))

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        return await self._ask(lambda coordinator: coordinator.commit_files(requests))

    async def delete_records(self, partition: PartitionKey, offset: int) -> DeletedRecords:
        return await self._ask(lambda coordinator: coordinator.delete_records(partition, offset))

    async def list_offsets(self, partition: PartitionKey, timestamp: int) -> ListedOffset:
        return await self._ask(lambda coordinator: coordinator.list_offsets(partition, timestamp))

    async def find(self, partition: PartitionKey, offset: int, max_bytes: int) -> FoundRuns:
        return await self._ask(lambda coordinator: coordinator.find(partition, offset, max_bytes))

    @property
    def leader_hint(self) -> int | None:
        """The node that is nominated to lead it, and that may."""
        return self._replica.leader_hint

    @property
    def has_copy(self) -> bool:
        """Whether this node knows all of it."""
        return self._replica.is_readable

    async def find_batches(
        self, asked: Sequence[AskedRuns], max_bytes: int, max_runs: int, calls: PeerCalls
    ) -> list[FoundRuns]:
        """DisklessFindBatches at the leader: an answer for each partition, in order.

        Args:
            asked: `ASKED_AT_ONCE` of them at most.
            max_bytes, max_runs: of the batches in all of them, about. The first partitions get theirs first.
            calls: these are used to ask another node.

        Raises:
            CoordinatorError: no answer.
        """

        def question(coordinator: DisklessCoordinator) -> Awaitable[list[FoundRuns]]:
            if isinstance(coordinator, RemoteCoordinator):
                return coordinator.by(calls).find_batches(asked, max_bytes, max_runs)
            return _find_here(coordinator, asked, max_bytes)

        return await self._ask(question)

    async def until_found(
        self, offsets: Mapping[PartitionKey, int], calls: PeerCalls, max_wait_ms: int
    ) -> list[PartitionKey]:
        """The partitions in which the leader has something from these offsets on, or that cannot be read.

        Args:
            calls: these are used to ask another node.
            max_wait_ms: how long it may wait while there is none.

        Raises:
            CoordinatorError: no answer.
        """

        async def question(coordinator: DisklessCoordinator) -> list[PartitionKey]:
            if isinstance(coordinator, RemoteCoordinator):
                return await coordinator.by(calls).until_found(offsets, max_wait_ms)
            return list(offsets)  # this node leads by now: whoever waits looks here

        return await self._ask(question)

    async def describe_files(self, object_keys: Sequence[str]) -> Mapping[str, bool]:
        return await self._ask(lambda coordinator: coordinator.describe_files(object_keys))

    async def oldest_file_ms(self) -> int | None:
        return await self._ask(lambda coordinator: coordinator.oldest_file_ms())

    async def raise_horizon(self, horizon_ms: int) -> None:
        await self._ask(lambda coordinator: coordinator.raise_horizon(horizon_ms))

    async def hand_over(self, files: Sequence[HandOver]) -> None:
        await self._ask(lambda coordinator: coordinator.hand_over(files))

    # --- routing -------------------------------------------------------------------------------------------------

    async def _ask(self, question: Question[R]) -> R:
        """Put the question where the coordinator is led; once more elsewhere if that turns out to be wrong.

        Until the first refusal it awaits nothing but the answer, so that commits of one object go together.
        """
        asked = self._leader()
        if asked is None:
            asked = await self._found_leader(None)
        try:
            return await self._put_to(asked, question)
        except NotCoordinatorError:
            self._guess.doubt(asked)
            other = await self._found_leader(asked)
            if other == asked:
                raise
        except CoordinatorError:
            self._guess.doubt(asked)
            raise
        return await self._put_to(other, question)

    async def _put_to(self, node_id: int, question: Question[R]) -> R:
        """Ask one node. It has to answer soon once the log says that another one leads: it may be out of reach."""
        if node_id == self._clients.node_id:
            return await question(self._local())
        remote = RemoteCoordinator(self._index, node_id, self._clients.calls_of(self._index), self._clients.commits)
        return await while_led(question(remote), partial(self._replica.until_led_elsewhere, node_id))

    def _leader(self) -> int | None:
        if self._replica.leading:
            return self._clients.node_id
        return self._guess.node(self._replica.leader_hint)

    async def _found_leader(self, refused_by: int | None) -> int:
        """Who leads, by what this node has learned meanwhile, or by its peers.

        Raises:
            NotCoordinatorError: nobody knows.
        """
        known = self._leader()
        if known is not None and known != refused_by:
            return known
        found = await self._clients.find_leader(self._index, refused_by)
        if found is None:
            raise NotCoordinatorError(f"nobody is known to lead the Diskless coordinator {self._index}")
        self._guess.tell(found)
        return found

    def _local(self) -> DisklessCoordinator:
        if not self._replica.leading:
            raise CoordinatorLoadingError(f"{self._replica.id} is about to be led by this node")
        return self._replica


async def _find_here(coordinator: DisklessCoordinator, asked: Sequence[AskedRuns], max_bytes: int) -> list[FoundRuns]:
    found = []
    for one in asked:
        answer = await coordinator.find(one.partition, one.offset, min(one.max_bytes, max(0, max_bytes)))
        max_bytes -= total_bytes(answer.runs)
        found.append(answer)
        await asyncio.sleep(0)
    return found
