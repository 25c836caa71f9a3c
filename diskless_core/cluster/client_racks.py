"""In which rack a client is: what it says itself, or what an operator knows of the way that it comes. Pure.

A request of a version that has a rack says it (KIP-1181). Stock clients say it in their `client.id`, as
`diskless_az=<rack>`. For clients that say nothing there are racks of listeners and of ranges of addresses.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from diskless_core.config.broker import BrokerConfig
from diskless_core.config.client_racks import NetworkRack

_IN_CLIENT_ID = re.compile(r"(?:^|[ ,|])diskless_az=([^ ,|]+)")
"""Between delimiters, for tools add to the id that they are given: MirrorMaker does, and Kafka Streams."""

_REMEMBERED = 4096
"""Client ids and hosts whose racks are not looked up anew."""

_REMEMBERED_CHARACTERS = 256
"""Of a client id. A longer one is looked into each time: ids may have 32,767 bytes."""


class ClientRacks:
    """The racks of clients. The same on all brokers whose settings are."""

    def __init__(self, config: BrokerConfig) -> None:
        self._by_listener: Mapping[str, str] = {
            entry.listener: entry.rack for entry in config.diskless_client_racks_by_listener
        }
        self._networks: Sequence[NetworkRack] = sorted(
            config.diskless_client_racks_by_network, key=lambda entry: entry.network.prefixlen, reverse=True
        )
        self._by_host = lru_cache(_REMEMBERED)(self._in_network)

    def rack_of(self, client_id: str | None, host: str, listener: str, said: str | None = None) -> str | None:
        """The rack of a client; None where nothing is known of it.

        What comes first in this order counts: what the request says, the client id, the listener, the longest range
        of addresses that has the host.

        Args:
            host: the address that the client connects from, without its port.
            said: the rack in the request itself; empty is the same as None.
        """
        return (
            said
            or (rack_in_client_id(client_id) if client_id else None)
            or self._by_listener.get(listener)
            or (self._by_host(host) if self._networks else None)
        )

    def _in_network(self, host: str) -> str | None:
        address = _address(host)
        if address is None:
            return None
        return next((entry.rack for entry in self._networks if address in entry.network), None)


def rack_in_client_id(client_id: str) -> str | None:
    """The rack in `diskless_az=<rack>`, which begins the id or follows a space, a comma or a `|`, and ends at one.

    Of several the first counts; one that is empty is none.
    """
    return (_remembered if len(client_id) <= _REMEMBERED_CHARACTERS else _found)(client_id)


def _found(client_id: str) -> str | None:
    found = _IN_CLIENT_ID.search(client_id)
    return found[1] if found is not None else None


_remembered = lru_cache(_REMEMBERED)(_found)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:  # not every transport has addresses
        return None
    # a listener for both families shows addresses of IPv4 like that
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
