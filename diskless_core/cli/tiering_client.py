"""What commands ask of a running Diskless about its topics' segments: over HTTP, and by Kafka's protocol."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from urllib.parse import urlencode

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from diskless_core.admin.models import RemoteSegment
from diskless_core.cli import admin_client, kafka_cluster
from diskless_core.cli.admin_client import AdminClientError
from diskless_core.cli.cluster_admin import ClusterAdmin
from diskless_core.cli.cluster_compaction import ClusterCompaction, CompactionWish
from diskless_core.cli.kafka_cluster import KafkaCluster, KafkaClusterError, Topic
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.listeners import WILDCARD_HOSTS
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from diskless_core.tiering.migration import coverage
from diskless_core.tiering.migration.coverage import GapError
from diskless_core.tiering.migration.kafka_export import ExportError, SourcePartition
from diskless_core.tiering.report import JobState

LAG_S = 3.0
"""How long a broker may take at most to hear of segments that another one has made."""

_DEFAULT_REPLICATION = -1


class TieringClient:
    """A running Diskless. Every method raises `AdminClientError` or `KafkaClusterError` where it does not answer."""

    def __init__(self, cluster: KafkaCluster, admin: ClusterAdmin) -> None:
        self._cluster = cluster
        self._admin = admin

    @classmethod
    @contextmanager
    def connected(
        cls, config: BrokerConfig, bootstrap: str | None, urls: Sequence[str] | None
    ) -> Iterator[TieringClient]:
        """The cluster of a broker's configuration, or one at other addresses, see `UrlsOption`.

        Raises:
            AdminClientError, KafkaClusterError: an address is not known, or nobody answers there.
        """
        addresses = admin_client.given_addresses(urls) or [admin_client.url_of(config.admin_listener)]
        with closing(KafkaCluster(bootstrap or _bootstrap_of(config))) as cluster:
            yield cls(cluster, ClusterAdmin(addresses))

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, which has to exist."""
        return len(self._topic(topic).leaders)

    def config(self, topic: str) -> Mapping[str, str]:
        """What is set for a topic itself."""
        return self._cluster.own_config(topic)

    def ensure_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """The topic, created if it is not there."""
        found = self._cluster.topic(name)
        return found or self._cluster.create_topic(name, partitions, _DEFAULT_REPLICATION, config)

    def compact(self, topics: Sequence[str]) -> None:
        """Have all records of topics moved into segments, by all brokers that lead them, and wait for it."""
        compaction = ClusterCompaction(self._admin, CompactionWish(topics=topics, everything=True), lambda *_: None)
        with ThreadPoolExecutor(1) as thread:  # the caller may be on an event loop of its own
            report = thread.submit(lambda: asyncio.run(compaction.by_brokers())).result()
        if report["state"] == JobState.FAILED:
            raise AdminClientError(f"the compaction of {', '.join(topics)} failed: {'; '.join(report['failures'])}")

    def partitions(self, topic: str) -> list[SourcePartition]:
        """The partitions of a topic, and the segments that hold their records.

        Raises:
            ExportError: some records are in no segment, also when the broker that is asked had time to hear of it.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(ExportError), stop=stop_after_delay(LAG_S), wait=wait_fixed(0.2), reraise=True
        )
        return retrying(self._partitions, topic)

    def _partitions(self, topic: str) -> list[SourcePartition]:
        found = self._topic(topic)
        starts = self._cluster.offsets(found, kafka_cluster.EARLIEST)
        ends = self._cluster.offsets(found, kafka_cluster.LATEST)
        segments = self.segments(found)
        return [
            self._covered(found.partition(partition), starts[partition], ends[partition], segments.get(partition, ()))
            for partition in sorted(found.leaders)
        ]

    def segments(self, topic: Topic) -> Mapping[int, Sequence[RemoteLogSegmentMetadata]]:
        """The complete segments of a topic by partition, in the order of their start offsets."""
        path = f"/remote-log?{urlencode({'topic': topic.name})}"
        answer = self._admin.ask_leader(lambda view: view.node_id, "GET", path)
        found = defaultdict(list)
        for one in answer:
            metadata = RemoteSegment.model_validate(one).metadata()
            partition = metadata.segment_id.topic_id_partition
            if partition.topic_id == topic.topic_id and metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                found[partition.partition].append(metadata)
        return found

    def adopt(
        self, partition: TopicIdPartition, log_start_offset: int, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> None:
        """Let an empty partition have segments that lie in its remote storage."""
        body = {
            "topic": partition.topic,
            "partition": partition.partition,
            "log_start_offset": log_start_offset,
            "segments": [RemoteSegment.of(segment).model_dump(mode="json") for segment in segments],
        }
        self._admin.ask_leader(lambda view: view.node_id, "POST", "/remote-log/adopt", body)

    def _covered(
        self, partition: TopicIdPartition, start: int, end: int, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> SourcePartition:
        try:
            chain = coverage.chain(segments, start, end)
        except GapError as error:
            raise ExportError(
                f"the records of {partition.name} from offset {error.offset} to {end - 1} are not all in segments: "
                "end all producers and try again; if that does not help, see the log of the broker"
            ) from error
        return SourcePartition(partition=partition.partition, log_start_offset=start, next_offset=end, segments=chain)

    def _topic(self, name: str) -> Topic:
        found = self._cluster.topic(name)
        if found is None:
            raise KafkaClusterError(f"there is no topic {name} at {self._cluster.bootstrap}")
        return found


def _bootstrap_of(config: BrokerConfig) -> str:
    clients = [one for one in config.listeners if one.name != config.inter_broker_listener_name] or config.listeners
    listener = clients[0]
    if listener.port == 0:
        raise AdminClientError("listeners names no port to reach the broker at: give its address with --diskless")
    host = "127.0.0.1" if listener.host in WILDCARD_HOSTS else listener.host
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
