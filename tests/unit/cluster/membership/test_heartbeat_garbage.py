"""Heartbeats that say what no broker of this cluster would."""

from __future__ import annotations

import pytest

from diskless_core.cluster.membership import wire
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.messages import BrokerHeartbeatRequest

KNOWN = ShardId("__diskless_metadata", 7)


@pytest.mark.parametrize(
    "names",
    [
        ["", "-", "__diskless_metadata", "orders-1", "__a-٣", "__a-" + "9" * 5_000, "__a-²"],
        [f"__diskless_metadata-{index}" for index in range(1000, 3000)],
        ["__diskless_metadata-07", str(KNOWN)],
    ],
)
def test_shards_that_the_cluster_does_not_have_are_left_out_and_the_others_count(names: list[str]) -> None:
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=1,
        current_metadata_offset=0,
        want_fence=False,
        want_shut_down=False,
        log_is_ok=True,
        bucket_is_ok=True,
        barred_shards=[*names, str(KNOWN)],
        doubtful_shards=[*names, str(KNOWN)],
    )
    health = wire.beat_of(request, {str(KNOWN): KNOWN}).health
    assert health.barred == health.doubtful == {KNOWN}
