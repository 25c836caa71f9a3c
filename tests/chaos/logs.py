"""The coordinator log that the brokers of a run share: the bucket, or an Apache Kafka whose nodes can be killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tests.chaos.proxy import Proxies, Proxy
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_cluster import KafkaCluster


class Log(Protocol):
    """Attributes:
    nodes: the processes of its own that can be killed; none if it has none.
    proxies: what stands before each of them.
    """

    @property
    def nodes(self) -> Sequence[ApacheKafka]: ...

    @property
    def proxies(self) -> Sequence[Proxy]: ...

    def start(self, proxies: Proxies) -> None:
        """Start what it needs and wait until it answers."""

    def end(self) -> None:
        """Make sure that no process is left."""

    def properties(self) -> Mapping[str, str]:
        """What every broker has to be told."""


class BucketLog:
    """Beside the objects, in the same store: what hurts the store hurts the log."""

    nodes: Sequence[ApacheKafka] = ()
    proxies: Sequence[Proxy] = ()

    def start(self, proxies: Proxies) -> None:
        del proxies

    def end(self) -> None:
        pass

    def properties(self) -> Mapping[str, str]:
        return {"coordinator_log": "bucket"}


class KafkaLog:
    """An Apache Kafka of so many nodes, which the brokers reach through proxies and the nodes each other directly."""

    def __init__(self, jars: Path, folder: Path, nodes: int) -> None:
        self._cluster = KafkaCluster(jars, folder, nodes)
        self.nodes = self._cluster.nodes
        self.proxies: list[Proxy] = []

    def start(self, proxies: Proxies) -> None:
        self.proxies = [proxies.before(int(node.bootstrap.rpartition(":")[2])) for node in self.nodes]
        self._cluster.advertise({index: f"127.0.0.1:{proxy.port}" for index, proxy in enumerate(self.proxies)})
        self._cluster.start()

    def end(self) -> None:
        self._cluster.end()

    def properties(self) -> Mapping[str, str]:
        replicas = min(3, len(self.nodes))
        return {
            "coordinator_log": "kafka",
            "coordinator_log.kafka.bootstrap.servers": ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies),
            "coordinator_log.kafka.topic.replication.factor": str(replicas),
            "coordinator_log.kafka.allow.unsafe": str(replicas < 3).lower(),
        }
