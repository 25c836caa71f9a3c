"""A broker as a member of the cluster. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.feature_levels import LevelRange

HTTP_LISTENER = "admin.listener"
"""The name under which a broker registers where its HTTP interface is. Listeners of Kafka's protocol have no dots in
theirs."""


class BrokerListener(NamedTuple):
    """Where a broker is reached: what it advertises. `security_protocol` is Kafka's number, 0 for PLAINTEXT."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpec:
    """What a broker says of itself when it registers.

    Attributes:
        incarnation_id: drawn by the broker's process at its start.
        features: levels by the feature's name.
    """

    node_id: int
    incarnation_id: uuid.UUID
    listeners: tuple[BrokerListener, ...]
    rack: str | None
    features: Mapping[str, LevelRange]

    def listener(self, name: str) -> BrokerListener | None:
        """The listener of this name; None where the broker has none."""
        return next((listener for listener in self.listeners if listener.name == name), None)

    @property
    def http_url(self) -> str | None:
        """Where its HTTP interface is; None where it has none that other machines reach."""
        found = self.listener(HTTP_LISTENER)
        if found is None:
            return None
        return f"http://[{found.host}]:{found.port}" if ":" in found.host else f"http://{found.host}:{found.port}"

    @property
    def address(self) -> str:
        """Where its first listener is, for people."""
        return f"{self.listeners[0].host}:{self.listeners[0].port}" if self.listeners else "an unknown address"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A broker that has registered.

    Attributes:
        epoch: the number of the registration, higher than that of any before. A broker that registers anew has a new
            one, and requests with an old one are refused.
        is_fenced: it is registered, and nobody is sent to it.
        is_shutting_down: it has asked to be shut down, and gets nothing new to do.
        fenced_at_ms: when it was fenced last by the controller's clock, in milliseconds since the epoch.
    """

    spec: BrokerSpec
    epoch: int
    is_fenced: bool
    is_shutting_down: bool = False
    fenced_at_ms: int = 0

    @property
    def is_live(self) -> bool:
        """Whether clients and brokers may be sent to it."""
        return not self.is_fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """A broker that can be given work, as the leader of the cluster shard sees it.

    Attributes:
        is_healthy: whether the log and the WAL object store answer it, by what it said last.
        barred: the shards that it cannot lead now.
        doubtful: those that it leads only where nobody else can: the log has not taken its claims.
        ready: those of which it has a copy that has caught up; None where it has not said: it is taken for ready.
        led: those that it leads, by what it said last.
    """

    node_id: int
    rack: str | None
    is_healthy: bool
    barred: frozenset[ShardId]
    doubtful: frozenset[ShardId] = frozenset()
    ready: frozenset[ShardId] | None = None
    led: frozenset[ShardId] = frozenset()
