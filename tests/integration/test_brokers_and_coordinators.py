"""Which of several brokers leads a coordinator, and one that was away for longer than the metadata log goes back."""

from __future__ import annotations

from pathlib import Path

from diskless_core.shards import DISKLESS
from tests.support.batches import batch_of, read_values
from tests.support.cluster import Cluster, in_thread, until
from tests.support.requests import append, create_topic, delete_topic, fetch, metadata_request

SHARD = DISKLESS.shard(0)
PRUNED_SOON = {"metadata.log.max.record.bytes.between.snapshots": "3000"}


async def test_a_broker_leads_no_coordinator_that_is_placed_elsewhere_whatever_the_log_hints(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}, properties={"diskless.coordinator.placement": "*:1"}) as cluster:
        cluster.shared.set_leader(SHARD, 2)
        await until(lambda: cluster.nodes[2].not_ready() == [f"nobody is known to lead {SHARD}"])
        await until(lambda: not cluster.leads(1, 0))
        assert not cluster.leads(2, 0)
        cluster.shared.set_leader(SHARD, 1)
        await until(lambda: cluster.leads(1, 0))
        await until(lambda: not cluster.nodes[2].not_ready())

        def clients() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                create_topic(one, "t")
                assert append(two, "t", batch_of(b"v")) == [0]

        await in_thread(clients)


async def test_a_broker_that_missed_what_the_log_forgot_goes_on_from_a_snapshot_without_a_restart(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}, properties=PRUNED_SOON) as cluster:
        values = [b"%d" % number for number in range(60)]

        def before() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                create_topic(one, "t")
                create_topic(one, "gone")
                append(one, "t", *map(batch_of, values[:10]))
                assert [topic.error_code for topic in two.call(metadata_request("t", "gone"), 12).topics] == [0, 0]

        def meanwhile() -> None:
            with cluster.connect(1) as one:
                append(one, "t", *map(batch_of, values[10:50]))
                assert delete_topic(one, "gone") == 0

        def after() -> None:
            with cluster.connect(1) as one:
                append(one, "t", *map(batch_of, values[50:]))

        def read_at_the_other() -> None:
            with cluster.connect(2) as two:
                assert read_values(fetch(two, "t", 0).records) == values
                assert two.call(metadata_request("gone"), 12).topics[0].error_code == 3

        await in_thread(before)
        cluster.lag(2)
        applied = {shard: state.high_watermark for shard, state in cluster.shared._shards.items()}
        await in_thread(meanwhile)
        await until(lambda: cluster.shared.state(SHARD).start > applied[SHARD])
        await in_thread(after)
        cluster.catch_up(2)
        await until(lambda: applied_offsets(cluster, 2) == applied_offsets(cluster, 1))
        assert cluster.nodes[2].not_ready() == []
        await in_thread(read_at_the_other)


def applied_offsets(cluster: Cluster, node_id: int) -> list[int]:
    """How far a broker is with each of its shards."""
    parts = cluster.nodes[node_id]._parts
    assert parts is not None
    return [shard.next_offset for shard in parts.coordinators.all()]
