"""Producer ids that no broker ever hands out twice: taken in blocks of the controller. (KIP-730.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from diskless_core.cluster import operations
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.calls import PeerCalls, require_success
from diskless_core.coordinator.errors import CoordinatorError, NotControllerError, OutcomeUnknownError
from diskless_core.protocol.messages import AllocateProducerIdsRequest

PATIENCE_S = 5.0
"""How long a client waits for a block that cannot be had, before it is told to ask again."""

ANSWER_MS = 2_000
"""How long the controller has for an answer."""

RETRY_S = 0.1

_UNREGISTERED = -1
_ID_LIMIT = 2**63


class ProducerIds:
    """One broker's supply. What is left of a block at a restart is never used, nor one whose answer was lost.

    Args:
        calls: to the controller, each within `ANSWER_MS`.
        epoch: the number of this process's registration, None where it has none.
    """

    def __init__(
        self, cluster: ClusterShard, node_id: int, calls: PeerCalls, epoch: Callable[[], int | None] = lambda: None
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._calls = calls
        self._epoch = epoch
        self._block: Iterator[int] = iter(())
        self._refill = asyncio.Lock()
        self._obstacle = "no answer in time"

    async def next(self) -> int:
        """A fresh producer id, within `PATIENCE_S`.

        Raises:
            CoordinatorError: a new block was needed and could not be had.
        """
        try:
            async with asyncio.timeout(PATIENCE_S), self._refill:
                producer_id = next(self._block, None)
                if producer_id is None:
                    self._block = iter(await self._take_block())
                    producer_id = next(self._block)
                return producer_id
        except TimeoutError:
            raise CoordinatorError(f"no producer ids could be taken: {self._obstacle}") from None

    async def _take_block(self) -> range:
        """A block, asked for again and again: the controller may be moving."""
        while True:
            try:
                if self._cluster.leading:
                    return await self._take_here()
                return await self._ask()
            except CoordinatorError as error:
                self._obstacle = str(error)
                await asyncio.sleep(RETRY_S)

    async def _take_here(self) -> range:
        epoch = self._epoch()
        return await self._cluster.submit(
            lambda command: operations.take_producer_ids(
                command, self._node_id, epoch if epoch is not None else _UNREGISTERED
            )
        )

    async def _ask(self) -> range:
        """A block of the node that leads the cluster shard.

        Raises:
            CoordinatorError: it gave none, or this node knows of none.
        """
        controller, epoch = self._cluster.leader_hint, self._epoch()
        if controller is None or controller == self._node_id:
            raise NotControllerError("nobody is known to lead the cluster shard")
        if epoch is None:
            raise CoordinatorError("this broker is not known to be registered")
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=epoch)
        response = await self._calls.call(controller, request)
        require_success(response.error_code)
        first, count = response.producer_id_start, response.producer_id_len
        if first < 0 or count <= 0 or first + count > _ID_LIMIT:
            raise OutcomeUnknownError(f"node {controller} sent {count} producer ids from {first} on")
        return range(first, first + count)
