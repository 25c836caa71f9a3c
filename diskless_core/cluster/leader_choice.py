"""Which broker a client is told to be the leader of a partition. Pure.

Any broker takes what is produced to any partition, so the leader that Metadata names is a choice for the client that
asks: a produce gateway of the partition's coordinator, in the client's rack (KIP-1181; KIP-1164, "Reducing multi-DC
commit operations"). Of several candidates a client gets the one with the greatest weight for it, by rendezvous hashing.
So all brokers that see the same cluster say the same to a client, nothing has to be remembered, clients are spread
evenly, and when a broker goes only its own clients move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from diskless_core.plugin.gateway_placement import Gateways, LiveBroker, brokers_by_rack

_REMEMBERED = 4096
"""Clients whose leaders are not worked out anew."""


class ClientIdentity(NamedTuple):
    """What a client is known by when it comes again, by whichever connection and to whichever broker.

    Attributes:
        user: the principal's name.
        host: the address that it connects from, without the port.
    """

    user: str
    client_id: str
    host: str


class Leaders:
    """The leaders that one client is told.

    Attributes:
        only: the leader of everything, where all are the same; None otherwise.
    """

    __slots__ = ("_by_shard", "_otherwise", "only")

    def __init__(self, by_shard: Mapping[int, int], otherwise: int) -> None:
        self._by_shard = by_shard
        self._otherwise = otherwise
        self.only: int | None = otherwise if set(by_shard.values()) <= {otherwise} else None

    def of(self, shard: int | None) -> int:
        """The leader of the partitions that belong to this coordinator, None for one that is not known."""
        return self._by_shard.get(shard, self._otherwise) if shard is not None else self._otherwise


class LeaderChoice:
    """The choice in one state of the cluster.

    Args:
        brokers: those that may be named, at least one.
        gateways: a placement on these brokers that keeps its contract; empty if there is none: any broker of a
            client's rack is as good as the other then.
    """

    def __init__(self, brokers: Collection[LiveBroker], gateways: Gateways) -> None:
        self._racks = brokers_by_rack(brokers)
        self._everybody = sorted(broker.node_id for broker in brokers)
        self._gateways = gateways
        self._for_client = lru_cache(_REMEMBERED)(self._choose)

    def leaders(self, client: ClientIdentity, rack: str | None) -> Leaders:
        """What a client of this rack is told; of no rack, or of one without brokers, gateways of any rack will do."""
        return self._for_client(_digest(client), rack if rack in self._racks else None)

    def _choose(self, client: bytes, rack: str | None) -> Leaders:
        here = self._racks[rack] if rack is not None else self._everybody
        ranked = sorted(here, key=lambda node_id: (_weight(client, node_id), node_id), reverse=True)
        by_shard = {shard: _first(ranked, _in_rack(racks, rack)) for shard, racks in self._gateways.items()}
        return Leaders(by_shard, ranked[0])


def _in_rack(racks: Mapping[str | None, frozenset[int]], rack: str | None) -> frozenset[int]:
    return racks[rack] if rack is not None else frozenset[int]().union(*racks.values())


def _first(ranked: Sequence[int], candidates: frozenset[int]) -> int:
    return next(node_id for node_id in ranked if node_id in candidates)


def _digest(client: ClientIdentity) -> bytes:
    """Stands for a client, however long its client id is: what is remembered of clients has a bound in bytes too."""
    return blake2b("\0".join(client).encode(errors="surrogateescape"), digest_size=16).digest()


def _weight(client: bytes, node_id: int) -> bytes:
    return blake2b(b"%b%d" % (client, node_id), digest_size=8).digest()
