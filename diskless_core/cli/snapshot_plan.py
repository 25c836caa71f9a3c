"""What a compaction would make, from the coordinators' snapshots in the object store: for when no broker is up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from diskless_core.cli.admin_client import AdminClientError
from diskless_core.cli.backends import Backends
from diskless_core.cluster import tiering_configs
from diskless_core.cluster.config_layers import BrokerLayers, BrokerSettings, topic_defaults
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.snapshots import snapshot_prefix
from diskless_core.snapshot.layouts import read_layouts
from diskless_core.tiering.planning import SegmentRules, plan_layout
from diskless_core.tiering.report import PlannedSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPlan:
    """A plan of what there was `taken_at_ms` after the epoch; `segments` as the broker answers them."""

    segments: list[dict[str, Any]]
    taken_at_ms: int


async def plan_from_snapshot(backends: Backends, topics: Sequence[str] | None, *, everything: bool) -> SnapshotPlan:
    """The plan of some topics, or all.

    Snapshots do not have the settings of topics, so that those count which a topic has without any of its own.

    Raises:
        AdminClientError: a topic is not in the snapshots.
        SnapshotError, WalObjectStoreError: they cannot be read.
    """
    async with backends.objects() as objects:
        snapshot = await read_layouts(
            objects, snapshot_prefix(backends.config), lambda topic: topics is None or topic in topics
        )
    missing = sorted({*(topics or ())} - {layout.partition.topic for layout in snapshot.layouts})
    if missing:
        raise AdminClientError(f"there is no topic {', '.join(missing)} in the snapshots of the coordinators")
    rules, now_ms = _default_rules(backends.config), backends.clock.now_ms()
    segments = [
        asdict(PlannedSegment.of(plan))
        for layout in snapshot.layouts
        for plan in plan_layout(layout, rules, now_ms, everything=everything)
    ]
    return SnapshotPlan(segments=segments, taken_at_ms=snapshot.taken_at_ms)


def _default_rules(config: BrokerConfig) -> SegmentRules:
    layers = BrokerLayers(settings=BrokerSettings.of(config), dynamic={}, dynamic_default={})
    return tiering_configs.segment_rules(topic_defaults(layers))
