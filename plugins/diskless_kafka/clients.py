"""Clients of an Apache Kafka, which create no topic unasked. All of it blocks; each has threads of its own besides."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from kafka.net import (
    HttpConnectProxy,
    KafkaConnectionManager,
    KafkaNetClient,
    KafkaNetSocket,
    KafkaSSLTransport,
    KafkaTCPTransport,
    NetworkSelector,
    Socks5Proxy,
    create_connection,
)

_DIRECTLY = "directly"

# at DEBUG it logs all that it sends, passwords included
logging.getLogger("kafka").setLevel(logging.INFO)


def open_admin(options: Mapping[str, Any]) -> Any:
    """An admin client, which has reached a broker.

    Raises:
        KafkaError: none can be reached within `bootstrap_timeout_ms`, which is retriable, or one refuses.
        OSError: a file of the TLS settings cannot be used, or a broker's certificate is not accepted.
    """
    return _opened(KafkaAdminClient, dict(options))


def open_producer(options: Mapping[str, Any]) -> Any:
    """A producer whose records come once and in order, or not at all.

    Raises:
        KafkaError, OSError: as `open_admin`.
    """
    required = {"acks": "all", "enable_idempotence": True}
    return _opened(KafkaProducer, {**options, **required})


def open_consumer(options: Mapping[str, Any]) -> Any:
    """A consumer without a group. An offset that is out of range is an error.

    Raises:
        KafkaError, OSError: as `open_admin`.
    """
    required = {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
    }
    return _opened(KafkaConsumer, {**options, **required})


def close_producer(producer: Any, timeout_s: float) -> None:
    """Close a producer; what it has not written by then fails."""
    try:
        producer.close(timeout=timeout_s)
    except KafkaTimeoutError:
        # close() gives up then, and leaves its thread and connections behind
        producer._sender.force_close()  # noqa: SLF001


class _Connections(KafkaConnectionManager):  # type: ignore[misc]
    """Tells at once when a broker refuses a new client. kafka-python would go on until it can only say that time is up.

    Attributes:
        is_opening: later on, a refusal may pass, and the client goes on trying.
    """

    is_opening = True

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """As kafka-python's own, which leaves a socket open without which the TLS handshake does not come about."""
        config = self.config
        sock = await create_connection(
            self._net,
            node.host,
            node.port,
            config["socket_options"],
            proxy_url=config["proxy_url"],
            timeout_at=timeout_at,
        )
        with ExitStack() as useless:
            useless.callback(sock.close)
            if self.ssl_enabled:
                tls = {key: value for key, value in config.items() if key.startswith("ssl_")}
                transport = KafkaSSLTransport(self._net, sock, host=node.host, **tls)
            else:
                transport = KafkaTCPTransport(self._net, sock, host=node.host)
            useless.callback(transport.close)
            try:
                await transport.handshake()
            except Exception as error:
                raise KafkaConnectionError(f"Handshake failed: {error}") from error
            useless.pop_all()
        return transport

    async def _connect(self, node: Any, conn: Any, **options: Any) -> None:
        await super()._connect(node, conn, **options)
        refusal = _refusal(conn.init_future.exception)
        if self.is_opening and refusal is not None:
            # the next attempt raises it
            self._auth_failures[node.node_id] = refusal


class _Sockets(KafkaNetSocket):  # type: ignore[misc]
    """Connects without a proxy, and closes what does not come about: kafka-python leaves it to the garbage collector.

    In a long outage that would be descriptors. kafka-python chooses it by the scheme of `proxy_url`.
    """

    SCHEMES: tuple[str, ...] = (_DIRECTLY,)

    async def sock_connect(self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class _SocksProxySockets(_Sockets, Socks5Proxy):  # type: ignore[misc]
    SCHEMES = Socks5Proxy.SCHEMES


class _HttpProxySockets(_Sockets, HttpConnectProxy):  # type: ignore[misc]
    SCHEMES = HttpConnectProxy.SCHEMES


def _refusal(error: BaseException | None) -> BaseException | None:
    """What trying again does not help against; None where the broker was not reached."""
    if isinstance(error, KafkaError):
        cause = error.__context__
        return cause if isinstance(cause, ssl.SSLCertVerificationError) else None if error.retriable else error
    return error if isinstance(error, FileNotFoundError | PermissionError | ssl.SSLError) else None


def _opened(client_class: Any, options: dict[str, Any]) -> Any:
    """The client; where it can't be made, what it has opened already is closed."""
    opened: list[Any] = []
    # kafka-python has two names for it, and this one decides
    proxy_url = options.get("proxy_url") or options.get("socks5_proxy") or f"{_DIRECTLY}://"

    def connect(**arguments: Any) -> Any:
        selector = NetworkSelector(**arguments)
        connections = _Connections(selector, **arguments)
        opened.append(KafkaNetClient(net=selector, manager=connections))
        # an argument of this name gets lost on its way: a deleted topic would come back, with defaults of the broker
        opened[-1].cluster.config["allow_auto_create_topics"] = False
        return opened[-1]

    try:
        client = client_class(**{**options, "proxy_url": proxy_url}, kafka_client=connect)
    except BaseException:
        for connected in opened:
            connected.close()
        raise
    for connected in opened:
        connected._manager.is_opening = False  # noqa: SLF001
    return client
