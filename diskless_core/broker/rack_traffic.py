"""What crosses racks: bytes between a broker and its clients, and between it and other brokers.

Whether two ends are in the same rack is found out once for each connection. After that a request and its answer add to
one counter each. A broker counts the connections that it has made to others and not those that others have made to it,
so the sum over all brokers has each byte once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import Counter

from diskless_core.metrics import Metrics
from diskless_core.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    DisklessCommitFileRequest,
    DisklessFindBatchesRequest,
    DisklessFollowShardRequest,
    DisklessReadObjectRequest,
    EnvelopeRequest,
)

if TYPE_CHECKING:  # a connection has the counters that it adds to
    from diskless_core.broker.connection import Connection
    from diskless_core.protocol.framing import Request


class Racks(Enum):
    """How the racks of two ends of a connection relate."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"
    """One of the ends has said no rack, or none that is known."""


class Purpose(Enum):
    """What brokers ask each other for."""

    COMMITS = "commits"
    ENTRIES = "entries"
    FORWARDED = "forwarded"
    OBJECTS = "objects"
    QUESTIONS = "questions"
    MEMBERSHIP = "membership"
    OTHER = "other"


_PURPOSES: Mapping[int, Purpose] = {
    DisklessCommitFileRequest.API_KEY: Purpose.COMMITS,
    DisklessFollowShardRequest.API_KEY: Purpose.ENTRIES,
    EnvelopeRequest.API_KEY: Purpose.FORWARDED,
    DisklessReadObjectRequest.API_KEY: Purpose.OBJECTS,
    DisklessFindBatchesRequest.API_KEY: Purpose.QUESTIONS,
    BrokerHeartbeatRequest.API_KEY: Purpose.MEMBERSHIP,
    BrokerRegistrationRequest.API_KEY: Purpose.MEMBERSHIP,
}


def relation(one: str | None, other: str | None) -> Racks:
    """How two racks relate; None or an empty name is a rack that nobody has said."""
    if not one or not other:
        return Racks.UNKNOWN
    return Racks.SAME if one == other else Racks.OTHER


# --- clients -----------------------------------------------------------------------------------------------------


class ClientBytes(NamedTuple):
    """The counters of the connections of clients whose racks relate to the broker's in the same way.

    Attributes:
        produced: for Produce requests.
        consumed: for answers to Fetch.
        other: for all else, both ways.
    """

    produced: Counter
    consumed: Counter
    other: Counter


RackOf = Callable[[str | None, str, str, str | None], str | None]
"""The rack of a client, as `ClientRacks.rack_of`: of its client id, host and listener, and what its request says."""


class ClientTraffic:
    """Tells which counters a client's connection adds to."""

    def __init__(self, metrics: Metrics, own_rack: str | None, rack_of: RackOf) -> None:
        self._own_rack = own_rack
        self._rack_of = rack_of
        self._by_racks = {
            racks: ClientBytes(*(metrics.client_bytes.labels(kind, racks.value) for kind in ClientBytes._fields))
            for racks in Racks
        }
        self._unknown = self._by_racks[Racks.UNKNOWN]

    def of(self, connection: Connection, client_id: str | None, request: Request | None) -> ClientBytes:
        """The counters of a connection, which are looked for at its first request.

        As long as the client's rack is not known, a request that says it settles that: a Fetch has `client.rack`.
        """
        known = connection.traffic
        if known is None or known is self._unknown:
            said: str | None = getattr(request, "rack_id", None)
            if known is None or said:
                host = connection.peer.rpartition(":")[0]
                rack = self._rack_of(client_id, host, connection.listener, said)
                known = connection.traffic = self._by_racks[relation(self._own_rack, rack)]
        return known


# --- other brokers -----------------------------------------------------------------------------------------------


class PeerBytes:
    """The counters of the connections to brokers whose racks relate to this one's in the same way."""

    def __init__(self, metrics: Metrics, racks: Racks) -> None:
        def by_key(direction: str) -> tuple[dict[int, Counter], Counter]:
            counters = {
                purpose: metrics.inter_broker_bytes.labels(purpose.value, direction, racks.value) for purpose in Purpose
            }
            return {key: counters[purpose] for key, purpose in _PURPOSES.items()}, counters[Purpose.OTHER]

        self._sent, self._other_sent = by_key("sent")
        self._received, self._other_received = by_key("received")

    def sent(self, api_key: int, size_bytes: int) -> None:
        """Count a request to the other broker."""
        self._sent.get(api_key, self._other_sent).inc(size_bytes)

    def received(self, api_key: int, size_bytes: int) -> None:
        """Count the answer to a request of this API."""
        self._received.get(api_key, self._other_received).inc(size_bytes)


class PeerTraffic:
    """Tells which counters a connection to another broker adds to.

    Args:
        rack_of: the rack that a broker has registered, by its node id.
    """

    def __init__(self, metrics: Metrics, own_rack: str | None, rack_of: Callable[[int], str | None]) -> None:
        self._own_rack = own_rack
        self._rack_of = rack_of
        self._by_racks = {racks: PeerBytes(metrics, racks) for racks in Racks}

    def to(self, node_id: int) -> PeerBytes:
        """The counters for a connection to this broker. A rack does not change before the connection ends."""
        return self._by_racks[relation(self._own_rack, self._rack_of(node_id))]
