"""Which racks clients are in, as an operator writes it, for clients that do not say so themselves (KIP-1181). Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.config.listeners import Listener
from diskless_core.plugin.config import split_list

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ListenerRack:
    """Clients of this listener are in this rack."""

    listener: str
    rack: str

    def __str__(self) -> str:
        return f"{self.listener}={self.rack}"


@dataclass(frozen=True, slots=True)
class NetworkRack:
    """Clients with an address in this range are in this rack."""

    network: Network
    rack: str

    def __str__(self) -> str:
        return f"{self.network}={self.rack}"


def parse_listener_racks(value: object) -> object:
    """Read `<listener>=<rack>`, separated by commas; anything but text is left for pydantic to judge.

    Raises:
        ValueError: an entry is malformed, or two are for the same listener.
    """
    if not isinstance(value, str):
        return value
    entries = tuple(ListenerRack(*_halves(part, "<listener>=<rack>")) for part in split_list(value))
    _require_distinct([entry.listener for entry in entries])
    return entries


def parse_network_racks(value: object) -> object:
    """Read `<address>/<bits>=<rack>`, separated by commas; anything but text is left for pydantic to judge.

    An address without bits is a range of its own.

    Raises:
        ValueError: an entry is malformed, two are for the same range, or an address has bits beyond its range.
    """
    if not isinstance(value, str):
        return value
    entries = tuple(map(_parse_network, split_list(value)))
    _require_distinct([entry.network for entry in entries])
    return entries


def check_listener_racks(entries: Sequence[ListenerRack], listeners: Sequence[Listener]) -> None:
    """Refuse racks of what no client connects to.

    Raises:
        ValueError: an entry names none of the listeners.
    """
    names = [listener.name for listener in listeners]
    for entry in entries:
        if entry.listener not in names:
            raise ValueError(f"{entry.listener!r} is none of the listeners, which are {', '.join(names)}")


def _parse_network(text: str) -> NetworkRack:
    written, rack = _halves(text, "<address>/<bits>=<rack>")
    try:
        return NetworkRack(ipaddress.ip_network(written), rack)
    except ValueError as error:
        raise ValueError(f"{written!r} is no range of addresses such as 10.0.16.0/20 or fd00::/8: {error}") from None


def _halves(text: str, form: str) -> tuple[str, str]:
    before, equals, rack = (word.strip() for word in text.partition("="))
    if not (before and equals and rack):
        raise ValueError(f"{text!r} is not of the form {form}")
    return before, rack


def _require_distinct(keys: Sequence[object]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"{key} is there twice")
