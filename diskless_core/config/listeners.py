"""Addresses as Kafka writes them, `PLAINTEXT://host:port`, and the rules for sets of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from diskless_core.plugin.config import split_list

WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - named here so that they are not advertised
"""Hosts that mean "all interfaces": good to listen on, useless to tell a client."""

SECURITY_PROTOCOLS = frozenset({"PLAINTEXT"})
"""Listener names that the broker can serve."""

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


def parse_listener(text: str, names: Collection[str]) -> Listener:
    """Read `name://host:port`; a missing host means all interfaces, as in Kafka.

    Raises:
        ValueError: it is malformed, or its name is none of `names`.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form <name>://<host>:<port>")
    if match["name"] not in names:
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
    listeners = tuple(parse_listener(part, SECURITY_PROTOCOLS) for part in split_list(value))
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise ValueError("two listeners have the same name")
    return listeners


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
