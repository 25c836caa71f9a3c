"""Who may do what: the one place that is asked. Until there is security, a listener tells who somebody is."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class AclOperation(IntEnum):
    """What can be allowed, by Kafka's numbers. So far those are here that are asked for."""

    CLUSTER_ACTION = 9


_OF_BROKERS = frozenset({AclOperation.CLUSTER_ACTION})


class Principal(NamedTuple):
    """Somebody who has sent a request: a user's name, and the listener that he came by."""

    user: str
    listener: str


class Caller(NamedTuple):
    """A client as the broker that it asked knows it.

    Attributes:
        user: the principal's name.
        host: the client's IP address.
        listener: by which it asked.
    """

    user: str
    host: str
    listener: str


def is_authorized(principal: Principal, operation: AclOperation, inter_broker_listener: str | None) -> bool:
    """Whether somebody may do this to the cluster. CLUSTER_ACTION is for brokers, and they come by their listener."""
    return operation in _OF_BROKERS and principal.listener == inter_broker_listener
