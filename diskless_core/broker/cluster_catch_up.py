"""Brings what this node knows of the cluster up to what the controller knew when it was asked.

A client may have created a topic, or deleted one and created another of the same name, through a broker that knows it
already, and then send this node a request that names the topic. What a name means now, only the controller can say.
"""

from __future__ import annotations

import asyncio

import structlog

from diskless_core.clock import Clock
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.calls import PeerCalls, require_success
from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError
from diskless_core.coordinator.peers import PeerTransport
from diskless_core.protocol.messages import DisklessDescribeShardsRequest
from diskless_core.shards import CLUSTER_SHARD

LIMIT_S = 1.0
"""How long a request may be held up: while there is no controller, a broker serves by what it knows."""

APART_S = 0.01
"""The least time between two questions: the controller answers those of all brokers."""

REST_S = 5.0
"""After a question that had no answer for `LIMIT_S`, no request is held up for this time."""

_log = structlog.get_logger(__name__)


class ClusterCatchUp:
    """Catches up with the controller. Requests that wait at the same time share a question.

    Args:
        transport: to other brokers, for these questions alone: one that takes too long ends its connection.
    """

    def __init__(self, node_id: int, shard: ClusterShard, transport: PeerTransport, clock: Clock) -> None:
        self._node_id = node_id
        self._shard = shard
        self._calls = PeerCalls(transport, timeout_ms=int(LIMIT_S * 1000), transfer_s=0)
        self._clock = clock
        self._asked: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._failures = 0
        self._rests_until_s = 0.0
        self._asked_s = -APART_S

    async def catch_up(self) -> None:
        """Return when this node knows every change of topics that a client was told of before the call.

        That is not certain without an answer of the controller within `LIMIT_S`, twice that where others wait already:
        then this node goes on with what it knows, and holds up no request for `REST_S`.

        Raises:
            CoordinatorLoadingError: the controller knows more, and this node has not read it in time.
        """
        if self._shard.leading or self._clock.monotonic() < self._rests_until_s:
            return
        if self._next is None:
            self._next = asyncio.create_task(self._round(self._asked), name="catching up with the controller")
            self._next.add_done_callback(_retrieve)
        asked = self._next
        await asyncio.wait([asked])
        if not asked.cancelled():  # as it is when the node stops
            asked.result()

    async def stop(self) -> None:
        """End what is under way."""
        tasks = [task for task in (self._asked, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _round(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        await asyncio.sleep(max(0.0, self._asked_s + APART_S - self._clock.monotonic()))
        # A question that is under way may have been answered already: a caller from here on needs another one.
        self._asked, self._next = self._next, None
        self._asked_s = self._clock.monotonic()
        deadline_s = self._clock.monotonic() + LIMIT_S
        try:
            async with asyncio.timeout(LIMIT_S):
                offset = await self._controllers_offset()
        except (CoordinatorError, TimeoutError) as error:
            if self._clock.monotonic() >= deadline_s:
                self._rests_until_s = deadline_s + REST_S
            self._failures += 1
            if self._failures == 1:
                _log.warning(
                    "this broker does not know whether it knows all topics, and goes on with those that it knows",
                    reason=str(error) or f"the controller has not answered for {LIMIT_S} s",
                )
            return
        self._failures = 0
        if not await until_applied(self._shard, offset, deadline_s, self._clock):
            # An offset that is stored now, under the id that a name had, could go with a topic that is deleted already.
            raise CoordinatorLoadingError(
                f"this broker has read {self._shard.next_offset} of {offset} offsets of the cluster's changes"
            )

    async def _controllers_offset(self) -> int:
        """How far the controller has read the cluster shard.

        Raises:
            CoordinatorError: the controller is not known, or it does not answer.
        """
        known = (self._shard.leader_hint, self._shard.claimed_by)
        controller = next((node_id for node_id in known if node_id not in (None, self._node_id)), None)
        if controller is None:
            raise CoordinatorError("no controller is known")
        response = await self._calls.call(controller, DisklessDescribeShardsRequest(shard_topics=[CLUSTER_SHARD.topic]))
        require_success(response.error_code)
        for shard in response.shards:
            if shard.shard_topic == CLUSTER_SHARD.topic and shard.is_leading:
                return int(shard.next_offset)
        raise CoordinatorError(f"broker {controller} is not the controller")


def _retrieve(task: asyncio.Task[None]) -> None:
    """Those who waited for it may be gone."""
    if not task.cancelled():
        task.exception()


async def until_applied(shard: ClusterShard, offset: int, deadline_s: float, clock: Clock) -> bool:
    """Wait until this node has applied everything below an offset, at most to a monotonic time. Whether it has."""
    while shard.next_offset < offset:
        left_s = deadline_s - clock.monotonic()
        if left_s <= 0:
            return False
        await shard.tail.until_more(left_s)
    return True
