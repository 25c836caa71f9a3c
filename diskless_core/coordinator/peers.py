"""How one node reaches the others: requests as bytes over some transport, addresses by node id. No socket is in here.

The transport of a broker is TCP (`broker/peer_connections.py`); a simulation puts its own network in this place.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class PeerError(Exception):
    """A request to another node got no answer.

    PeerError
    ├── PeerUnavailableError   it was not sent: nothing happened
    │   └── PeerGoneError      nor will it be: nobody listens there
    └── AnswerLostError        it was sent: it may have been carried out, or may yet
    """


class PeerUnavailableError(PeerError):
    """There is no connection to the node, and none could be made; the request was not sent."""


class PeerGoneError(PeerUnavailableError):
    """Nobody listens where the node did: its process has most likely ended."""


class AnswerLostError(PeerError):
    """The connection broke, or the time was over, before the answer came."""


class PeerRequest(NamedTuple):
    """A request of Kafka's protocol without frame and header."""

    api_key: int
    api_version: int
    body: bytes


class PeerTransport(Protocol):
    """Carries requests to other nodes and brings their answers."""

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes | memoryview:
        """The body of the response. Requests to one node may be under way together; they arrive in the order sent.

        A memoryview is the caller's, who may write to it.

        Raises:
            PeerUnavailableError: the request was not sent.
            AnswerLostError: it was, and there is no answer within `timeout_s`.
        """
        ...


class PeerAddress(NamedTuple):
    """Where a node's inter-broker listener is reached."""

    host: str
    port: int


class AskOnce(Protocol):
    """Carries one request to whoever listens at an address, by a connection that is made for it alone."""

    async def __call__(self, address: PeerAddress, request: PeerRequest, timeout_s: float) -> bytes | memoryview:
        """The body of the response. `timeout_s` is for all of it, the connection included.

        Raises:
            PeerUnavailableError: the request was not sent.
            AnswerLostError: it was, and there is no answer in time.
        """
        ...


def listener_advice(listener: str) -> str:
    """What to set for a node that others do not reach at the address that it says, to go after the word "set"."""
    return (
        f"{listener} in its advertised.listeners to an address by which all other brokers reach it, and let them "
        "through to that port"
    )


class Peers(Protocol):
    """The other nodes of the cluster that are known."""

    def address_of(self, node_id: int) -> PeerAddress | None:
        """None when nobody has told of such a node."""
        ...

    def node_ids(self) -> list[int]:
        """All of them, in ascending order, this node left out."""
        ...


class PeerMap:
    """Peers that it was told of. A broker knows them from their registrations instead."""

    def __init__(self, own_node_id: int) -> None:
        self._own_node_id = own_node_id
        self._addresses: dict[int, PeerAddress] = {}

    def address_of(self, node_id: int) -> PeerAddress | None:
        return self._addresses.get(node_id)

    def node_ids(self) -> list[int]:
        return sorted(node_id for node_id in self._addresses if node_id != self._own_node_id)

    def learn(self, node_id: int, address: PeerAddress) -> None:
        """A node's address; it replaces the one that was known."""
        self._addresses[node_id] = address
