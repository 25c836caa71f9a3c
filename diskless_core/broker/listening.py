"""The sockets of a broker: binds its listeners, closes what is idle, and lets what is under way end at a stop.

Connections of the inter-broker listener have a server of their own: no limit that is for clients holds them up, since
what clients wait for may be what another broker asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from diskless_core.broker import open_files
from diskless_core.broker.answer_memory import AnswerMemory
from diskless_core.broker.connection import Connection, Dispatcher, Room, Server
from diskless_core.broker.connection_limit import ConnectionLimit
from diskless_core.broker.endpoint import Endpoint
from diskless_core.broker.errors import StartError
from diskless_core.broker.receive_memory import ReceiveMemory
from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.listeners import LOOPBACK_HOSTS, Listener
from diskless_core.config.types import MAX_INT
from diskless_core.metrics import Metrics
from diskless_core.pages import PagePool
from diskless_core.protocol.messages import FetchRequest, OffsetCommitRequest, ProduceRequest

ANSWER_S = 0.5
"""How long a stop waits at least for requests to be answered, once nothing more is committed."""

_SHARE_WHAT_THEY_WAIT_FOR = frozenset({ProduceRequest.API_KEY, OffsetCommitRequest.API_KEY})
_MAX_IDLE_FRAME_BYTES = 64 << 20
_BACKLOG_CONNECTIONS = 1024

_log = structlog.get_logger(__name__)


class Listening:
    """All listeners of a broker, of which the inter-broker one ends after those of clients."""

    def __init__(self, config: BrokerConfig, clock: Clock, metrics: Metrics) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._pool = PagePool(_MAX_IDLE_FRAME_BYTES)
        self._answer_memory = AnswerMemory(config.diskless_fetch_inflight_max_bytes, metrics)
        self._servers: dict[str, Server] = {}
        self._sockets: dict[str, asyncio.Server] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._answered_until = 0.0
        self.endpoints: dict[str, Endpoint] = {}

    def client_server(
        self,
        dispatcher: Dispatcher,
        max_connections: Callable[[], int],
        room: Room,
    ) -> Server:
        """What the connections of clients share. Files that are open now are taken for the broker's own.

        A connection has any number of Produce and OffsetCommit requests under way, for those share what they wait for,
        and have small answers. Of all others it has one at a time. Apache Kafka has one of any kind, so clients cope
        with that, and no client makes the broker keep many answers by asking ahead.
        """
        files = open_files.room_for_clients(open_files.limit(), open_files.in_use())
        limit = ConnectionLimit(max_connections, files, self._clock)
        return self._server(dispatcher, limit, room, lambda api_key: api_key not in _SHARE_WHAT_THEY_WAIT_FOR)

    def peer_server(self, dispatcher: Dispatcher) -> Server:
        """What the connections of other brokers share. Their requests are processed in parallel, but for Fetch."""
        unlimited = ConnectionLimit(lambda: MAX_INT, MAX_INT, self._clock)
        return self._server(dispatcher, unlimited, None, lambda api_key: api_key == FetchRequest.API_KEY)

    def _server(
        self,
        dispatcher: Dispatcher,
        limit: ConnectionLimit,
        room: Room | None,
        one_at_a_time: Callable[[int], bool],
    ) -> Server:
        return Server(
            dispatcher,
            self._pool,
            ReceiveMemory(self._config.diskless_append_inflight_max_bytes, self._metrics),
            self._answer_memory,
            max_frame_bytes=self._config.socket_request_max_bytes,
            limit=limit,
            room=room,
            needs_room=frozenset({ProduceRequest.API_KEY}),
            one_at_a_time=one_at_a_time,
            metrics=self._metrics,
        )

    async def bind(self) -> None:
        """Bind all listeners: then `endpoints` is known, and a connection is refused until `start`.

        Raises:
            StartError: one cannot be bound; `stop` closes the others.
        """
        for listener in self._config.listeners:
            self._sockets[listener.name] = await self._bind(listener)

    async def start(self, servers: Mapping[str, Server]) -> None:
        """Accept connections on the listeners of these names, each with its server. The others may follow later.

        Raises:
            StartError: somebody else listens there already; `stop` closes the others.
        """
        self._servers |= servers
        for listener in self._config.listeners:
            if listener.name not in servers:
                continue
            try:
                await self._sockets[listener.name].start_serving()
            except OSError as error:
                raise _cannot_listen(listener, error) from error
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._close_idle_connections(), name="idle connections")

    async def _bind(self, listener: Listener) -> asyncio.Server:
        try:
            listening = await asyncio.get_running_loop().create_server(
                lambda: Connection(self._servers[listener.name], listener.name),
                listener.host,
                listener.port,
                reuse_address=True,
                backlog=_BACKLOG_CONNECTIONS,
                start_serving=False,
            )
        except OSError as error:
            raise _cannot_listen(listener, error) from error
        if listener.name == self._config.inter_broker_listener_name and listener.host not in LOOPBACK_HOSTS:
            _log.warning(
                "the inter-broker listener can be reached from other machines, and nobody has to say who he is",
                listener=str(listener),
            )
        port = listening.sockets[0].getsockname()[1]
        advertised = next(
            (entry for entry in self._config.advertised_listeners if entry.name == listener.name), listener
        )
        self.endpoints[listener.name] = Endpoint(self._config.node_id, advertised.host, advertised.port or port)
        return listening

    async def _close_idle_connections(self) -> None:
        idle_s = self._config.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(idle_s / 4)
            oldest = asyncio.get_running_loop().time() - idle_s
            for connection in self._connections(self._servers):
                if connection.last_active < oldest and connection.is_idle:
                    connection.close()

    # --- stopping ------------------------------------------------------------------------------------------------

    @property
    def has_clients(self) -> bool:
        """Whether any client is connected."""
        return bool(self._connections(self._client_names()))

    @property
    def clients_wait(self) -> bool:
        """Whether any request of a client is under way."""
        return any(not connection.is_idle for connection in self._connections(self._client_names()))

    def refuse_clients(self) -> None:
        """Accept no more connections and requests of clients.

        Those under way are still answered, within `diskless.shutdown.timeout.ms` from now on.
        """
        self._answered_until = self._clock.monotonic() + self._config.diskless_shutdown_timeout_ms / 1000
        for name in self._client_names():
            if name in self._sockets:
                self._sockets[name].close()
        for connection in self._connections(self._client_names()):
            connection.stop_reading()

    async def end_clients(self) -> None:
        """Wait until the last requests of clients are answered, as long as there is time; close their connections."""
        await self._end(self._client_names())

    async def stop(self) -> None:
        """Close everything."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for listening in self._sockets.values():
            listening.close()
        for connection in self._connections(self._servers):
            connection.stop_reading()
        await self._end(list(self._servers))

    async def _end(self, names: Sequence[str]) -> None:
        deadline = max(self._answered_until, self._clock.monotonic() + ANSWER_S)
        while any(not connection.is_idle for connection in self._connections(names)):
            if self._clock.monotonic() > deadline:
                _log.warning("requests are still under way and are given up")
                break
            await asyncio.sleep(0.01)
        for connection in self._connections(names):
            connection.close()

    def _client_names(self) -> list[str]:
        return [name for name in self._servers if name != self._config.inter_broker_listener_name]

    def _connections(self, names: Sequence[str] | Mapping[str, Server]) -> list[Connection]:
        servers = {id(self._servers[name]): self._servers[name] for name in names}
        return [connection for server in servers.values() for connection in server.connections]


def _cannot_listen(listener: Listener, error: OSError) -> StartError:
    return StartError(
        f"cannot listen on {listener}: {error.strerror or error}. Is another broker running? "
        f"Set `listeners` to another address; port 0 takes any free one"
    )
