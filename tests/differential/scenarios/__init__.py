"""The scenarios, one module for each part of the protocol."""

from __future__ import annotations

from tests.differential.scenarios import (
    administration,
    cluster,
    committing,
    configs,
    consumer_groups,
    fetching,
    group_configs,
    groups,
    offsets,
    producing,
    records,
    topics,
)

SCENARIOS = (
    *producing.SCENARIOS,
    *records.SCENARIOS,
    *fetching.SCENARIOS,
    *offsets.SCENARIOS,
    *topics.SCENARIOS,
    *configs.SCENARIOS,
    *group_configs.SCENARIOS,
    *groups.SCENARIOS,
    *committing.SCENARIOS,
    *consumer_groups.SCENARIOS,
    *cluster.SCENARIOS,
    *administration.SCENARIOS,
)
