"""How far the copies of all shards are, on all brokers: each is asked for its own when somebody wants to know.

(KIP-1164, "Monitoring".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from diskless_core.broker.coordinators import Coordinators
from diskless_core.coordinator.calls import PeerCalls, require_success
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.peers import Peers, PeerTransport
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.messages import DisklessDescribeShardsRequest, DisklessDescribeShardsResponse

ANSWER_MS = 2_000
"""How long a broker is waited for before it counts as one that does not answer."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A shard as one broker has it.

    Attributes:
        is_leading: whether the broker leads the shard, as far as it knows.
        term: offset of the latest claim that it has read, -1 before the first.
        next_offset: everything below it is applied.
        stored_offset: everything below it is in the broker's store too.
        failure: why the shard's work there is over; None while it goes on.
    """

    is_leading: bool
    term: int
    next_offset: int
    stored_offset: int
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCopies:
    """One shard on all brokers.

    Attributes:
        copies: by node id, of the brokers that have one; None of a broker that should have one and gave no answer.
    """

    shard: ShardId
    copies: Mapping[int, Copy | None]

    @property
    def leader(self) -> int | None:
        """The broker that leads in the latest term; None where none is known. One of an earlier term is deposed."""
        leading = (node_id for node_id, copy in self.copies.items() if copy is not None and copy.is_leading)
        return next((node_id for node_id in leading if self._term(node_id) == self.term), None)

    @property
    def term(self) -> int:
        """The latest that any broker has read the claim of; -1 before the first."""
        return max(map(self._term, self.copies), default=-1)

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed: some broker has applied it."""
        return max((copy.next_offset for copy in self.copies.values() if copy is not None), default=0)

    def _term(self, node_id: int) -> int:
        copy = self.copies[node_id]
        return copy.term if copy is not None else -1

    def lag(self, node_id: int) -> int | None:
        """By how many offsets a broker's copy is behind; None where it gave no answer."""
        copy = self.copies.get(node_id)
        return None if copy is None else self.high_watermark - copy.next_offset


class AllShardCopies:
    """Asks this broker's shards, and the other brokers for theirs.

    Args:
        transport: to other brokers; nobody waits behind these requests.
    """

    def __init__(self, node_id: int, coordinators: Coordinators, peers: Peers, transport: PeerTransport) -> None:
        self._node_id = node_id
        self._coordinators = coordinators
        self._peers = peers
        self._calls = PeerCalls(transport, timeout_ms=ANSWER_MS, transfer_s=0)

    def own(self) -> Mapping[ShardId, Copy]:
        """The copies of this broker."""
        return {
            shard.id: Copy(
                is_leading=shard.leading,
                term=shard.latest_term,
                next_offset=shard.next_offset,
                stored_offset=shard.stored_offset,
                failure=shard.failure,
            )
            for shard in self._coordinators.followed()
        }

    async def all(self) -> Sequence[ShardCopies]:
        """All shards, with the copies that the brokers have of them, registered ones all."""
        others = self._peers.node_ids()
        answers = await asyncio.gather(*map(self._copies_of, others))
        by_node = {self._node_id: self.own()} | dict(zip(others, answers, strict=True))
        return [ShardCopies(shard=shard.id, copies=self._of(shard.id, by_node)) for shard in self._coordinators.all()]

    def _of(self, shard: ShardId, by_node: Mapping[int, Mapping[ShardId, Copy] | None]) -> Mapping[int, Copy | None]:
        copies: dict[int, Copy | None] = {}
        for node_id, told in sorted(by_node.items()):
            copy = told.get(shard) if told is not None else None
            if copy is not None or (told is None and self._coordinators.is_to_follow(shard, node_id)):
                copies[node_id] = copy
        return copies

    async def _copies_of(self, node_id: int) -> Mapping[ShardId, Copy] | None:
        """None where the broker gives no answer."""
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                response = await self._calls.call(node_id, DisklessDescribeShardsRequest(shard_topics=[]))
            require_success(response.error_code)
        except (CoordinatorError, TimeoutError) as error:
            _log.info("a broker does not say how far its shards are", node=node_id, reason=str(error) or "too late")
            return None
        return {ShardId(one.shard_topic, one.shard_index): _copy(one) for one in response.shards}


def _copy(told: DisklessDescribeShardsResponse.DisklessDescribedShard) -> Copy:
    return Copy(
        is_leading=told.is_leading,
        term=told.term,
        next_offset=told.next_offset,
        stored_offset=told.stored_offset,
        failure=told.failure,
    )
