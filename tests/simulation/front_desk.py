"""The handlers of one broker of a simulated world, asked by frames as its connections ask them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from diskless_core.broker.apis import CLIENT_APIS, INTER_BROKER_APIS
from diskless_core.broker.connection import Connection
from diskless_core.broker.dispatch import ApiDispatcher, Apis
from diskless_core.broker.endpoint import Endpoint
from diskless_core.broker.frames import Frame
from diskless_core.broker.parts import BrokerParts
from diskless_core.broker.services import Services
from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.peers import PeerRequest
from diskless_core.metrics import Metrics
from diskless_core.pages import PagePool
from diskless_core.protocol.codec import ApiMessage
from diskless_core.protocol.framing import encode_request_header, is_flexible

if TYPE_CHECKING:
    from diskless_core.broker.connection import Answer

_CORRELATION_ID = 7
_CORRELATION_ID_BYTES = 4
_CLIENT = "simulation"


class _Connection:
    """What handlers see of a connection."""

    user = "ANONYMOUS"
    peer = "127.0.0.1:50000"

    def __init__(self, listener: str) -> None:
        self.listener = listener


class FrontDesk:
    """Args:
    clients, brokers: the listeners' names.
    """

    def __init__(
        self,
        config: BrokerConfig,
        parts: BrokerParts,
        clock: Clock,
        metrics: Metrics,
        endpoints: Mapping[str, Endpoint],
        *,
        clients: str,
        brokers: str,
    ) -> None:
        services = Services.of(config, parts, clock, metrics, endpoints)
        self._clients = _Listener(services, CLIENT_APIS, clients)
        self._brokers = _Listener(services, INTER_BROKER_APIS, brokers)

    async def of_client(self, request: ApiMessage, version: int, response_class: type[Any]) -> Any:
        """The response to a client's request."""
        body = await self._clients.answer(PeerRequest(request.API_KEY, version, bytes(request.encode(version=version))))
        return response_class.decode(body, version=version)

    async def of_broker(self, request: PeerRequest) -> bytes:
        """The body of the response to another broker's request."""
        return await self._brokers.answer(request)


class _Listener:
    def __init__(self, services: Services, apis: Apis, name: str) -> None:
        self._dispatcher = ApiDispatcher(services, apis)
        self._connection = cast("Connection", _Connection(name))

    async def answer(self, request: PeerRequest) -> bytes:
        header = encode_request_header(request.api_key, request.api_version, _CORRELATION_ID, _CLIENT)
        data = header + request.body
        frame = Frame(len(data), PagePool(0))
        frame.view[:] = data
        outcome = self._dispatcher.dispatch(frame, self._connection)
        pieces: Answer = await outcome if inspect.isawaitable(outcome) else outcome
        assert pieces is not None, "there is no answer"
        skipped = 4 + _CORRELATION_ID_BYTES + is_flexible(request.api_key, request.api_version)
        return b"".join(pieces)[skipped:]
