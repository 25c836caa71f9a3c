"""The cluster as one broker sees it, for tools: who is in it, where each can be asked, and who leads what. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Who answers a request: the broker and its cluster; None while it does not know yet, early in its start."""

    node_id: int | None
    cluster_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """A registered broker.

    Attributes:
        is_fenced: nobody is sent to it.
        fenced_reason: why it is fenced, as the controller says; None where it is not, or the controller does not say.
        http: where its HTTP interface is, as `http://host:port`; None where other machines reach none.
    """

    node_id: int
    rack: str | None
    is_fenced: bool
    fenced_reason: str | None = None
    http: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """A coordinator shard.

    Attributes:
        shard: as operators call it, such as `diskless-0`.
        leader: the node that leads it, or is to; None where none is known.
        term: offset of the latest claim that is known, -1 before the first.
        high_watermark: everything below it is committed; None where the other brokers were not asked.
        lag: by how many offsets each broker's copy is behind, None of one that gave no answer; None where they were
            not asked.
    """

    shard: str
    leader: int | None
    term: int
    high_watermark: int | None = None
    lag: Mapping[int, int | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """All of it. `node_id` is the broker that says so."""

    node_id: int
    cluster_id: str
    controller: int | None
    brokers: Sequence[BrokerView]
    shards: Sequence[ShardView]

    def problems(self) -> list[str]:
        """Why clients may wait, whichever broker they ask: coordinators that no live broker leads. Empty if none."""
        live = {broker.node_id for broker in self.brokers if not broker.is_fenced}
        return [_problem(shard) for shard in self.shards if shard.leader not in live]


def _problem(shard: ShardView) -> str:
    if shard.leader is None:
        return f"nobody leads {shard.shard}"
    return f"broker {shard.leader}, which is fenced or not registered, is to lead {shard.shard}"
