"""Whole brokers on one log that says only who is the controller: it nominates leaders of all coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskless_core.broker import storage_probe
from diskless_core.broker.errors import StartError
from diskless_core.cluster import controller
from tests.support.batches import batch_of
from tests.support.cluster import Cluster, in_thread, until
from tests.support.requests import append, create_topic

SHARDS = 4
NOBODY_IS_HINTED = dict.fromkeys(range(SHARDS), 1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "STEADY_S", 0.2)
    monkeypatch.setattr(controller, "BALANCE_PAUSE_S", 0.05)
    monkeypatch.setattr(storage_probe, "PATIENCE_S", 2.0)


def led(cluster: Cluster) -> dict[int, int]:
    """How many coordinators each broker leads, the cluster's not counted."""
    counts = {}
    for node_id, node in cluster.nodes.items():
        assert node._parts is not None
        counts[node_id] = sum(
            shard.leading for shard in node._parts.coordinators.all() if shard is not node._parts.coordinators.cluster
        )
    return counts


async def test_brokers_share_the_coordinators_and_one_that_stops_gives_its_own_away(tmp_path: Path):
    async with Cluster(tmp_path, NOBODY_IS_HINTED, (1, 2, 3), nominates=True) as cluster:
        await until(lambda: sorted(led(cluster).values()) == [1, 2, 2])

        def write(offset: int) -> None:
            with cluster.connect(1) as one:
                for partition in range(SHARDS):
                    assert append(one, "t", batch_of(b"a"), partition=partition) == [offset]

        with cluster.connect(1) as one:
            await in_thread(lambda: create_topic(one, "t", SHARDS))
        await in_thread(lambda: write(0))
        leaving = cluster.nodes.pop(3)
        await leaving.stop()
        await in_thread(lambda: write(1))
        await until(lambda: sorted(led(cluster).values()) == [2, 3])
        await cluster.start(3)
        await until(lambda: sorted(led(cluster).values()) == [1, 2, 2])
        await in_thread(lambda: write(2))


async def test_a_coordinator_whose_only_broker_is_still_to_start_keeps_no_other_broker_from_starting(tmp_path: Path):
    placement = {"diskless.coordinator.placement": "0:2,1:2,*:1"}
    async with Cluster(tmp_path, NOBODY_IS_HINTED, (1, 2), placement, nominates=True) as cluster:
        await until(lambda: led(cluster) == {1: SHARDS - 1, 2: 2})


async def test_a_broker_with_objects_of_its_own_does_not_start(tmp_path: Path):
    async with Cluster(tmp_path, NOBODY_IS_HINTED, (1,), nominates=True) as cluster:
        cluster._properties = {"wal_object_store.fsspec.url": f"file://{tmp_path / 'own'}"}
        with pytest.raises(StartError, match="All brokers need the same wal_object_store"):
            await cluster.start(2)


async def test_a_second_process_with_a_node_id_claims_nothing_before_it_is_refused(tmp_path: Path):
    quick = {"broker.heartbeat.interval.ms": "200"}
    async with Cluster(tmp_path, NOBODY_IS_HINTED, (1, 2), quick, nominates=True) as cluster:
        await until(lambda: sorted(led(cluster).values()) == [2, 3])
        first = cluster.nodes[2]._parts
        assert first is not None
        terms = {shard.id: shard.term for shard in first.coordinators.all()}
        with pytest.raises(StartError, match="the node id 2 is that of the broker at"):
            await cluster.start(2, folder="second")
        assert {shard.id: shard.term for shard in first.coordinators.all()} == terms
