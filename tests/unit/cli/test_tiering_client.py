"""What commands ask of a running Diskless about segments."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diskless_core.admin.compaction import CompactionAnswer
from diskless_core.admin.models import RemoteSegment
from diskless_core.cli import cluster_compaction, kafka_cluster, tiering_client
from diskless_core.cli.admin_client import AdminClientError
from diskless_core.cli.cluster_admin import ClusterAdmin
from diskless_core.cli.kafka_cluster import KafkaClusterError, Leader, Topic
from diskless_core.cli.log_positions import Address
from diskless_core.cli.tiering_client import TieringClient
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.tiering.migration.kafka_export import ExportError, SourcePartition
from diskless_core.tiering.report import JobReport

LEADER = Leader(broker_id=0, address=Address("localhost", 9092))
TOPIC = Topic(name="t", topic_id=uuid.UUID(int=7), leaders=dict.fromkeys((0, 1), LEADER))


def segment(partition, start, end, topic_id=TOPIC.topic_id, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED):
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(TopicIdPartition(topic_id, "t", partition), uuid.UUID(int=start + 1)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=6,
        segment_size_bytes=100,
        segment_leader_epochs={0: start, 3: end},
        custom_metadata=b"\x00x",
        state=state,
    )


class Cluster:
    """Its topic, and where its partitions begin and end."""

    bootstrap = "here:9092"

    def topic(self, name):
        return TOPIC if name == "t" else None

    def offsets(self, topic, position):
        return {0: 5, 1: 0} if position == kafka_cluster.EARLIEST else {0: 20, 1: 0}


@pytest.fixture
def http() -> Iterator[Http]:
    answering = Http()
    yield answering
    answering.close()


class Http:
    """Answers requests from lists by method and path, the last one again and again, and remembers bodies."""

    def __init__(self):
        self.answers = {}
        self.bodies = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self._answer("GET")

            def do_POST(self):
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer("POST")

            def _answer(self, method):
                answers = outer.answers[method, self.path]
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(answers.pop(0) if len(answers) > 1 else answers[0]).encode())

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        url = f"http://127.0.0.1:{self._server.server_port}"
        self.client = TieringClient(Cluster(), ClusterAdmin([url]))
        shard = {"shard": "diskless-0", "leader": 1, "term": 0}
        broker = {"node_id": 1, "rack": None, "is_fenced": False, "http": url}
        about = {"node_id": 1, "cluster_id": "c", "controller": 1, "brokers": [broker], "shards": [shard]}
        self.answers["GET", "/cluster"] = [about]

    def have_segments(self, *segments):
        self.answers["GET", "/remote-log?topic=t"] = [
            [RemoteSegment.of(one).model_dump(mode="json") for one in segments]
        ]

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_the_segments_of_each_partition_are_those_that_hold_its_records(http):
    http.have_segments(
        segment(0, 0, 9),
        segment(0, 10, 19),
        segment(0, 20, 29, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED),
        segment(0, 0, 19, topic_id=uuid.UUID(int=6)),
    )
    assert http.client.partitions("t") == [
        SourcePartition(
            partition=0, log_start_offset=5, next_offset=20, segments=[segment(0, 0, 9), segment(0, 10, 19)]
        ),
        SourcePartition(partition=1, log_start_offset=0, next_offset=0, segments=[]),
    ]


def test_records_that_are_in_no_segment_are_told(http, monkeypatch):
    monkeypatch.setattr(tiering_client, "LAG_S", 0)
    http.have_segments(segment(0, 0, 9))
    with pytest.raises(ExportError, match="t-0 from offset 10 to 19 are not all in segments"):
        http.client.partitions("t")


def test_segments_that_the_broker_has_not_heard_of_yet_are_waited_for(http):
    path = ("GET", "/remote-log?topic=t")
    http.have_segments(segment(0, 0, 19))
    known = http.answers[path]
    http.have_segments(segment(0, 0, 9))
    http.answers[path] += known
    assert [one.segments for one in http.client.partitions("t")] == [[segment(0, 0, 19)], []]


def test_a_topic_that_is_not_there_is_told(http):
    with pytest.raises(KafkaClusterError, match="no topic other at here:9092"):
        http.client.partition_count("other")


def test_a_compaction_is_waited_for(http, monkeypatch):
    monkeypatch.setattr(cluster_compaction, "POLL_S", 0)
    http.answers["POST", "/compaction"] = [report("waiting")]
    http.answers["GET", "/compaction/job"] = [report(state) for state in ("waiting", "running", "finished", "failed")]
    http.client.compact(["t"])
    assert http.bodies == [{"topics": ["t"], "all": False, "shards": [0], "engine": None, "everything": True}]
    assert http.answers["GET", "/compaction/job"] == [report("failed")]


def test_a_compaction_can_be_waited_for_on_an_event_loop(http, monkeypatch):
    monkeypatch.setattr(cluster_compaction, "POLL_S", 0)
    http.answers["POST", "/compaction"] = [report("waiting")]
    http.answers["GET", "/compaction/job"] = [report("finished")]

    async def on_a_loop():
        http.client.compact(["t"])

    asyncio.run(on_a_loop())


def report(state, *failures):
    job = JobReport(id="job", node_id=1, shards=[0], engine="inline", begun_at_ms=1, state=state)
    job.failures += failures
    return CompactionAnswer.of(job).model_dump(mode="json")


def test_a_compaction_that_fails_is_told(http):
    http.answers["POST", "/compaction"] = [report("waiting")]
    http.answers["GET", "/compaction/job"] = [report("failed", "no space", "no time")]
    with pytest.raises(AdminClientError, match="compaction of t failed: no space; no time"):
        http.client.compact(["t"])


def test_segments_are_given_to_a_partition_with_all_that_is_known_of_them(http):
    http.answers["POST", "/remote-log/adopt"] = [{}]
    segments = [segment(0, 0, 9), replace(segment(0, 10, 19), custom_metadata=None)]
    http.client.adopt(TOPIC.partition(0), 5, segments)
    (body,) = http.bodies
    assert (body["topic"], body["partition"], body["log_start_offset"]) == ("t", 0, 5)
    assert [RemoteSegment.model_validate(one).metadata() for one in body["segments"]] == segments
