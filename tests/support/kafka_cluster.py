"""A real Apache Kafka of several nodes, for tests that kill some of them: each node is broker and controller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.apache_kafka import QUICK_START, ApacheKafka, free_ports

_REPLICAS = 3
_SETTINGS = {
    "inter.broker.listener.name": "REPLICATION",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # so that the others notice quickly that a node was killed
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
}


class KafkaCluster:
    """KRaft nodes that are brokers and controllers, each with its data in a folder of its own below `folder`."""

    def __init__(self, jars: Path, folder: Path, nodes: int = _REPLICAS) -> None:
        self.nodes = [
            ApacheKafka(jars, folder / f"kafka-{number}", options=(*QUICK_START, "-Xmx256m"))
            for number in range(1, nodes + 1)
        ]
        voters = ",".join(f"{number}@{node.controller}" for number, node in enumerate(self.nodes, 1))
        replicas, in_sync = str(min(nodes, _REPLICAS)), str(min(nodes, _REPLICAS - 1))
        self._replication = [f"127.0.0.1:{port}" for port in free_ports(nodes)]
        for number, (node, replication) in enumerate(zip(self.nodes, self._replication, strict=True), 1):
            node.configure(
                {
                    **_SETTINGS,
                    "node.id": str(number),
                    "controller.quorum.voters": voters,
                    "listeners": (
                        f"PLAINTEXT://{node.bootstrap},REPLICATION://{replication},CONTROLLER://{node.controller}"
                    ),
                    "default.replication.factor": replicas,
                    "min.insync.replicas": in_sync,
                    "offsets.topic.replication.factor": replicas,
                }
            )

    def advertise(self, addresses: Mapping[int, str]) -> None:
        """Tell clients to connect to other addresses, by the index of a node. To be called before the start."""
        for index, address in addresses.items():
            listeners = f"PLAINTEXT://{address},REPLICATION://{self._replication[index]}"
            self.nodes[index].configure({"advertised.listeners": listeners})

    def start(self) -> KafkaCluster:
        """Start all nodes and wait until they serve clients."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()
        return self

    def end(self) -> None:
        """Make sure that no process is left; the data stay."""
        for node in self.nodes:
            node.end()
