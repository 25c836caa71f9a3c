"""A cluster of broker processes on one bucket, in which one broker leads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until

VIEW_TIMEOUT_S = 120.0

LEADS_NOTHING = 1
NODE_IDS = (1, 2, 3)
LEADERS = "|".join(str(node_id) for node_id in NODE_IDS if node_id != LEADS_NOTHING)


def on_one_bucket(folder: Path) -> dict[str, str]:
    """What brokers of one host have in common that are a cluster: a listener for each other, and a bucket, which is a
    folder.
    """
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "coordinator_log": "bucket",
        "wal_object_store.fsspec.url": (folder / "bucket").as_uri(),
    }


def view(broker: BrokerProcess) -> Any:
    """What a broker tells of its cluster over HTTP."""
    return httpx.get(f"{broker.admin}/cluster", timeout=VIEW_TIMEOUT_S).raise_for_status().json()


def settled(brokers: Mapping[int, BrokerProcess]) -> list[int]:
    """Wait until all brokers say that coordinators are spread, after which none moves; who leads the Diskless ones."""

    def spread() -> list[int] | None:
        shards = [view(broker)["shards"] for broker in brokers.values()]
        nominated = [shard["leader"] for shard in shards[0] if shard["shard"] != "cluster-0"]
        loads = [nominated.count(node_id) for node_id in brokers]
        if max(loads) - min(loads) > 1 or any(told != shards[0] for told in shards):
            return None
        return [shard["leader"] for shard in shards[0] if shard["shard"].startswith("diskless-")]

    return wait_until(spread, "coordinators are spread")


class BrokerCluster:
    """Three brokers, by node id. Only the first start of each is together with the others.

    Args:
        properties: what every broker is told, besides its place in the cluster.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.brokers = {
            node_id: BrokerProcess(
                folder / f"broker-{node_id}",
                {
                    "node.id": str(node_id),
                    "broker.rack": f"rack-{node_id}",
                    **on_one_bucket(folder),
                    "diskless.coordinator.placement": f"*:{LEADERS}",
                    "auto.leader.rebalance.enable": "false",  # who leads does not change while tests run
                    "broker.session.timeout.ms": "60000",
                    **(properties or {}),
                },
            )
            for node_id in NODE_IDS
        }

    @property
    def follower(self) -> BrokerProcess:
        """The broker that leads nothing."""
        return self.brokers[LEADS_NOTHING]

    def start(self) -> BrokerCluster:
        """Start all brokers, and wait until clients can connect to each."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(BrokerProcess.start, self.brokers.values()))
        return self

    def stop(self) -> None:
        """Stop all in good order, the one that leads nothing first."""
        for broker in self.brokers.values():
            broker.stop()

    def end(self) -> None:
        """Make sure that no process is left."""
        for broker in self.brokers.values():
            broker.end()
