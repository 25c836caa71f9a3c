"""Addresses as Kafka writes them, `PLAINTEXT://host:port`, and the rules for sets of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from diskless_core.plugin.config import split_list

WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - named here so that they are not advertised
"""Hosts that mean "all interfaces": good to listen on, useless to tell a client."""

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
"""Hosts that only this machine reaches."""

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's, which may stand in `listener.security.protocol.map`."""

SUPPORTED_PROTOCOLS = frozenset({"PLAINTEXT"})
"""Those of them that a listener can have until there is security."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_ADDRESS = re.compile(r"(?P<name>[A-Za-z_]\w*)://(?P<host>\[[0-9A-Fa-f:.%]*\]|[^\[\]:/\s]*):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address. `host` is without brackets and never empty; port 0 means whichever port is free."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ListenerProtocol:
    """One entry of `listener.security.protocol.map`: which protocol the listeners of a name speak."""

    name: str
    protocol: str

    def __str__(self) -> str:
        return f"{self.name}:{self.protocol}"


DEFAULT_PROTOCOL_MAP = tuple(ListenerProtocol(protocol, protocol) for protocol in SECURITY_PROTOCOLS)


def parse_protocol_map(value: object) -> object:
    """Read `name:protocol,…`; anything but text is left for pydantic to judge.

    Raises:
        ValueError: an entry is malformed, its protocol is none of Kafka's, or two entries have the same name.
    """
    if not isinstance(value, str):
        return value
    entries = []
    for part in split_list(value):
        name, colon, protocol = (word.strip() for word in str(part).partition(":"))
        if not (_NAME.fullmatch(name) and colon and protocol in SECURITY_PROTOCOLS):
            raise ValueError(
                f"{part!r} is not of the form <name>:<protocol>, with one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        entries.append(ListenerProtocol(name, protocol))
    if len({entry.name for entry in entries}) < len(entries):
        raise ValueError("two entries have the same name")
    return tuple(entries)


def check_protocols(listeners: Sequence[Listener], protocol_map: Sequence[ListenerProtocol]) -> None:
    """Refuse listeners that the broker cannot serve.

    Raises:
        ValueError: a listener's name has no protocol, or one that is not supported.
    """
    protocols = {entry.name: entry.protocol for entry in protocol_map}
    for listener in listeners:
        if listener.name not in protocols:
            raise ValueError(f"{listener.name!r} has no protocol: add it to listener.security.protocol.map")
        if protocols[listener.name] not in SUPPORTED_PROTOCOLS:
            supported = " and ".join(sorted(SUPPORTED_PROTOCOLS))
            raise ValueError(f"{protocols[listener.name]!r} is not supported here, only {supported}")


def check_inter_broker(name: str, listeners: Sequence[Listener], advertised: Sequence[Listener]) -> None:
    """Refuse an inter-broker listener that other brokers could not use, or that clients would need.

    Raises:
        ValueError: it is none of `listeners`, the only one of them, or listens on all interfaces and is not advertised.
    """
    own = [listener for listener in listeners if listener.name == name]
    if not own:
        raise ValueError(f"{name!r} is not the name of one of the listeners")
    if len(listeners) == 1:
        raise ValueError(f"{name!r} is the only listener: clients need one of their own")
    reachable = [listener for listener in (*advertised, *own) if listener.name == name]
    if reachable[0].host in WILDCARD_HOSTS:
        raise ValueError(f"{own[0]} listens on all interfaces: advertised.listeners has to say where brokers reach it")


def parse_listener(text: str, names: Collection[str] | None = None) -> Listener:
    """Read `name://host:port`; a missing host means all interfaces, as in Kafka.

    Raises:
        ValueError: it is malformed, or its name is none of `names`, where these are given.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form <name>://<host>:<port>")
    if names is not None and match["name"] not in names:
        raise ValueError(f"{match['name']!r} is not supported here, only {' and '.join(sorted(names))}")
    port = int(match["port"])
    if port > 65535:
        raise ValueError(f"port {port} is above 65535")
    host = match["host"].strip("[]") or "0.0.0.0"  # noqa: S104 - Kafka's meaning of an empty host
    return Listener(match["name"], host, port)


def parse_listeners(value: object) -> object:
    """Read a comma-separated list of Kafka listeners; anything but text is left for pydantic to judge.

    Raises:
        ValueError: one is malformed, or two share a name.
    """
    if not isinstance(value, str):
        return value
    listeners = tuple(parse_listener(part) for part in split_list(value))
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise ValueError("two listeners have the same name")
    return listeners


def parse_admin_listener(value: object) -> object:
    """`http://host:port`, or nothing to have no admin listener.

    Raises:
        ValueError: it is malformed.
    """
    if not isinstance(value, str):
        return value
    return parse_listener(value, {"http"}) if value else None


def check_advertised(advertised: Sequence[Listener], listeners: Sequence[Listener]) -> None:
    """Refuse addresses that clients could not use.

    Raises:
        ValueError: an advertised host is a wildcard, or its name is no listener's.
    """
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            raise ValueError(f"{listener} advertises a listener that is not in listeners")
        if listener.host in WILDCARD_HOSTS:
            raise ValueError(
                f"{listener} listens on all interfaces, which no client can connect to: "
                f"set advertised.listeners to an address of this host that clients can reach"
            )


def check_advertised_http(advertised: Listener, listener: Listener | None) -> None:
    """Refuse an address of the HTTP interface that tools could not use.

    Raises:
        ValueError: its host is a wildcard, or there is no HTTP interface.
    """
    if listener is None:
        raise ValueError("admin.listener is empty: there is no HTTP interface to tell of")
    if advertised.host in WILDCARD_HOSTS:
        raise ValueError(f"{advertised} is no address that anybody can connect to")
