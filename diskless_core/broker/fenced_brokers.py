"""Why brokers are fenced: only the controller knows, so that another broker asks it when somebody wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from diskless_core.clock import Clock
from diskless_core.cluster.membership.brokers import Brokers
from diskless_core.cluster.membership.registrar import Registrar
from diskless_core.coordinator.calls import PeerCalls, require_success
from diskless_core.coordinator.errors import CoordinatorError, NotControllerError
from diskless_core.coordinator.peers import PeerTransport
from diskless_core.protocol.messages import DisklessDescribeShardsRequest
from diskless_core.shards import CLUSTER_SHARD

ANSWER_MS = 1_000
"""How long the controller is waited for before the reasons stay unknown."""

KEPT_S = 1.0
"""How long what the controller said is told again: clients may ask as often as they like."""

_log = structlog.get_logger(__name__)


class FencedBrokers:
    """Answers by what this node knows as the controller, or asks the one that it knows.

    Args:
        transport: to other brokers, for these requests alone: one that takes too long ends its connection.
    """

    def __init__(
        self, node_id: int, registrar: Registrar, brokers: Brokers, transport: PeerTransport, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._registrar = registrar
        self._brokers = brokers
        self._calls = PeerCalls(transport, timeout_ms=ANSWER_MS, transfer_s=0)
        self._clock = clock
        self._asking = asyncio.Lock()
        self._told: Mapping[int, str] = {}
        self._told_until_s = float("-inf")

    def own(self) -> Mapping[int, str] | None:
        """What this node knows as the controller, by node id; None where another one is."""
        try:
            return self._registrar.fenced()
        except NotControllerError:
            return None

    async def reasons(self) -> Mapping[int, str]:
        """Why each fenced broker is, for people, by node id. Nothing of those that the controller does not tell of."""
        if not any(one.is_fenced for one in self._brokers.all()):
            return {}
        own = self.own()
        if own is not None:
            return own
        controller = self._brokers.controller
        if controller is None or controller == self._node_id:
            return {}
        async with self._asking:
            if self._clock.monotonic() >= self._told_until_s:
                self._told = await self._ask(controller)
                self._told_until_s = self._clock.monotonic() + KEPT_S
            return self._told

    async def _ask(self, controller: int) -> Mapping[int, str]:
        request = DisklessDescribeShardsRequest(shard_topics=[CLUSTER_SHARD.topic])
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                response = await self._calls.call(controller, request)
            require_success(response.error_code)
        except (CoordinatorError, TimeoutError) as error:
            _log.info("the controller does not say why brokers are fenced", node=controller, reason=str(error))
            return {}
        return {one.broker_id: one.reason for one in response.fenced_brokers}
