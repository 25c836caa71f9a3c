"""The HTTP interface as an operator and their tools use it."""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import replace

import httpx
import pytest
from pydantic import Field, SecretStr, field_validator

from diskless_core.admin.http import AdminServer
from diskless_core.admin.models import RemoteSegment
from diskless_core.admin.sources import Sources
from diskless_core.cluster.view import BrokerView, ClusterView, ShardView, Speaker
from diskless_core.config.listeners import Listener
from diskless_core.coordinator.errors import (
    ClockSkewError,
    CoordinatorError,
    CoordinatorLoadingError,
    NotCoordinatorError,
)
from diskless_core.coordinator.status import ShardStatus
from diskless_core.files.orphans import ScanReport
from diskless_core.metrics import Metrics
from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.errors import PluginLoadError, PluginNotFoundError
from diskless_core.plugin.orphan_detection import OrphanDetectionError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.wal_object_store import WalObjectStoreError, WalObjectStorePlugin
from diskless_core.plugin_host.discovery import PluginEntryPoint
from diskless_core.plugin_host.health import Health
from diskless_core.plugin_host.loading import LoadedPlugin, QuarantinedPlugin
from diskless_core.plugin_host.manager import Catalogue
from diskless_core.testing.remote_log_metadata_tools import PARTITION, segment
from diskless_core.tiering.segment_admin import AdoptionError
from diskless_core.tiering.topics import UnknownTopicError

ANY_PORT = Listener("http", "127.0.0.1", 0)


class BucketSettings(PluginSettings):
    url: str = Field(description="Where objects go.")
    timeout_ms: int = Field(default=1000, ge=1, description="Patience, in milliseconds.")
    password: SecretStr | None = Field(default=None, description="Password.")

    @field_validator("password")
    @classmethod
    def _long_enough(cls, value):
        if value is not None and len(value.get_secret_value()) < 20:
            raise ValueError(f"{value.get_secret_value()} is too short")
        return value


def entry_point(name):
    return PluginEntryPoint(
        noun="wal_object_store", name=name, value=f"acme.{name}", distribution="acme", version="1.2", load=object
    )


BUCKET = LoadedPlugin(
    entry_point=entry_point("bucket"),
    descriptor=WalObjectStorePlugin(
        name="bucket",
        factory=lambda context, settings: None,
        settings=BucketSettings,
        api_version="1.0",
        help="A bucket.",
    ),
    location="acme/bucket.py",
)
BROKEN = QuarantinedPlugin(entry_point=entry_point("broken"), reason="it raised", traceback_text="Traceback: x")


class StubPlugins:
    def catalogue(self):
        return Catalogue(loaded=[BUCKET], commands=[], quarantined=[BROKEN])

    def get(self, noun, name):
        if name == "broken":
            raise PluginLoadError("it raised", traceback_text="Traceback: x")
        if (noun, name) != ("wal_object_store", "bucket"):
            raise PluginNotFoundError(f"there is no {noun} {name!r}")
        return BUCKET


SELECTED = {
    "process": {"pid": 7, "resident_bytes": 1 << 20, "threads": 3, "python_threads": 2},
    "selected": [
        {
            "noun": "wal_object_store",
            "name": "bucket",
            "distribution": "acme",
            "version": "1.2",
            "location": "acme/bucket.py",
            "api_version": "1.0",
            "source": "server.properties:3",
            "state": "started",
            "settings": [{"name": "wal_object_store.bucket.url", "value": "x", "source": "default"}],
            "health": Health("wal_object_store", "bucket").as_json(),
        }
    ],
}


@pytest.fixture
def reasons():
    return []


class StubShards:
    """One shard, or an error."""

    def __init__(self):
        self.error = None

    async def __call__(self, *, count):
        if self.error is not None:
            raise self.error
        return [
            ShardStatus(
                shard="__diskless_metadata-0",
                leader=1,
                leading=True,
                term=4,
                log_start_offset=0,
                high_watermark=9,
                applied_offset=8,
                stored_offset=7,
                pending_commands=1,
                snapshot_offset=5,
                snapshot_taken_at=1_700_000_000_000,
                bytes_since_snapshot=99,
                failure=None,
                rows={"topics": 1, **({"files": 3} if count else {})},
                data_bytes=1000,
                objects={"live": 2, "dead": 1} if count else None,
            )
        ]


BROKER = BrokerView(node_id=1, rack="r", is_fenced=False, http=None)


class StubCluster:
    """A broker that leads everything, or an error."""

    def __init__(self):
        self.error = None
        self.brokers = [BROKER]
        self.leader = 1

    async def __call__(self, *, lag, why_fenced):
        if self.error is not None:
            raise self.error
        copies = {"high_watermark": 9, "lag": {1: 0, 2: None}} if lag else {}
        names = ("cluster-0", "diskless-0")
        return ClusterView(
            node_id=1,
            cluster_id="abc",
            controller=1,
            brokers=self.brokers,
            shards=[ShardView(shard=name, leader=self.leader, term=4, **copies) for name in names],
        )


class StubOrphans:
    """Two orphans, which go unless it is a dry run, or an error."""

    def __init__(self):
        self.error = None

    async def __call__(self, *, dry_run):
        if self.error is not None:
            raise self.error
        return ScanReport(threshold_ms=7, listed=9, candidates=4, orphans=["a", "b"], deleted=0 if dry_run else 2)


class StubRemoteLog:
    """One segment of each of two topics, or an error."""

    def __init__(self):
        self.error = None
        self.known = [segment(1, 0, 9), segment(2, 0, 9, partition=PARTITION._replace(topic="other"))]

    async def segments(self, *, topic, partition):
        if self.error is not None:
            raise self.error
        if topic == "missing":
            raise UnknownTopicError("there is no topic missing")
        return [
            one
            for one in self.known
            if topic in (None, one.segment_id.topic_id_partition.topic)
            and partition in (None, one.segment_id.topic_id_partition.partition)
        ]

    async def adopt(self, topic, partition, log_start_offset, segments):
        if self.error is not None:
            raise self.error
        self.adopted = topic, partition, log_start_offset, segments


def no_compactor():
    raise CoordinatorLoadingError("the broker is starting or stopping")


def sources(**given):
    return Sources(
        **{
            "metrics": Metrics(),
            "speaker": lambda: Speaker(node_id=1, cluster_id="abc"),
            "readiness": list,
            "warnings": list,
            "cluster": StubCluster(),
            "plugins": StubPlugins(),
            "selected": lambda: SELECTED,
            "shards": StubShards(),
            "orphans": StubOrphans(),
            "compactor": no_compactor,
            "remote_log": StubRemoteLog,
            "layouts": no_compactor,
            **given,
        }
    )


@pytest.fixture
def orphans():
    return StubOrphans()


@pytest.fixture
def cluster():
    return StubCluster()


@pytest.fixture
def shards():
    return StubShards()


@pytest.fixture
async def client(reasons, shards, orphans, cluster):
    metrics = Metrics()
    metrics.produce_records.inc(5)
    server = AdminServer(
        ANY_PORT,
        sources(metrics=metrics, readiness=lambda: reasons, shards=shards, orphans=orphans, cluster=cluster),
    )
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield http
    await server.stop()


async def test_metrics_are_in_prometheus_text_format(client):
    answer = await client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "diskless_produce_records_total 5.0" in answer.text.splitlines()


async def test_a_broker_that_is_not_ready_says_why_and_is_alive_all_the_same(client, reasons):
    reasons.append("shard __diskless_metadata-0 has no leader")

    ready = await client.get("/health/ready")
    live = await client.get("/health/live")

    assert ready.status_code == 503
    assert ready.json() == {
        "node_id": 1,
        "cluster_id": "abc",
        "ready": False,
        "reasons": ["shard __diskless_metadata-0 has no leader"],
        "warnings": [],
    }
    assert live.status_code == 200


async def test_a_broker_becomes_ready_when_there_is_no_reason_left(client, reasons):
    reasons.append("starting")
    before = await client.get("/health/ready")
    reasons.clear()
    after = await client.get("/health/ready")

    assert (before.status_code, after.status_code) == (503, 200)
    assert after.json() == {"node_id": 1, "cluster_id": "abc", "ready": True, "reasons": [], "warnings": []}


async def test_a_warning_is_shown_and_keeps_no_client_away():
    server = AdminServer(ANY_PORT, sources(warnings=lambda: ["standard error can't be written"]))
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        answer = await http.get("/health/ready")
    await server.stop()
    assert answer.status_code == 200
    assert answer.json()["ready"]
    assert answer.json()["warnings"] == ["standard error can't be written"]


@pytest.mark.parametrize("path", ["/metrics", "/health/live", "/plugins", "/nothing"])
async def test_every_answer_says_who_gives_it(client, path):
    headers = (await client.get(path)).headers
    assert (headers["Diskless-Node-Id"], headers["Diskless-Cluster-Id"]) == ("1", "abc")


async def test_a_broker_that_does_not_know_yet_who_it_is_says_nothing_of_it():
    server = AdminServer(ANY_PORT, sources(speaker=lambda: Speaker(node_id=None, cluster_id=None)))
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        answer = await http.get("/health/ready")
    await server.stop()
    assert "Diskless-Node-Id" not in answer.headers
    assert answer.json() == {"node_id": None, "cluster_id": None, "ready": True, "reasons": [], "warnings": []}


async def test_the_cluster_is_shown_as_the_broker_sees_it(client):
    view = (await client.get("/cluster")).json()
    assert view["brokers"] == [{"node_id": 1, "rack": "r", "is_fenced": False, "fenced_reason": None, "http": None}]
    assert [(shard["leader"], shard["lag"]) for shard in view["shards"]] == [(1, None)] * 2
    compared = (await client.get("/cluster", params={"lag": True})).json()
    assert compared["shards"][0]["lag"] == {"1": 0, "2": None}


@pytest.mark.parametrize(
    ("fenced", "leader", "problems"),
    [
        (False, 1, []),
        (True, 1, ["broker 1, which is fenced or not registered, is to lead diskless-0"]),
        (False, None, ["nobody leads diskless-0"]),
    ],
)
async def test_a_cluster_is_healthy_while_all_coordinators_have_live_leaders(client, cluster, fenced, leader, problems):
    cluster.brokers, cluster.leader = [replace(BROKER, is_fenced=fenced)], leader
    answer = await client.get("/health/cluster")
    assert answer.status_code == (503 if problems else 200)
    assert (answer.json()["reasons"][1:], answer.json()["fenced"]) == (problems, [1] if fenced else [])


@pytest.mark.parametrize(
    ("error", "status", "again_s"),
    [
        (NotCoordinatorError("node 1 does not lead it"), 421, None),
        (CoordinatorLoadingError("it is being loaded"), 503, "1"),
        (ClockSkewError("the clocks differ"), 503, None),
    ],
)
async def test_what_another_broker_leads_or_this_one_does_soon_is_told_apart(client, orphans, error, status, again_s):
    orphans.error = error
    answer = await client.post("/orphans/scan")
    assert (answer.status_code, answer.json()["message"]) == (status, str(error))
    assert answer.headers.get("Retry-After") == again_s


async def test_plugins_are_listed_with_type_version_and_location_and_the_broken_ones_with_their_error(client):
    bucket, broken = (await client.get("/plugins")).json()

    assert (bucket["type"], bucket["name"], bucket["version"]) == ("wal_object_store", "bucket", "1.2")
    assert (bucket["location"], bucket["error"]) == ("acme/bucket.py", None)
    assert (broken["name"], broken["error"], broken["traceback"]) == ("broken", "it raised", "Traceback: x")


async def test_the_settings_of_a_plugin_can_be_asked_for(client):
    settings = (await client.get("/plugins/wal_object_store/bucket/config")).json()

    assert [setting["name"] for setting in settings] == [
        "wal_object_store.bucket.url",
        "wal_object_store.bucket.timeout.ms",
        "wal_object_store.bucket.password",
    ]
    assert settings[0]["required"] is True
    assert settings[1]["default_value"] == "1000"
    assert settings[2]["type"] == "password"


async def test_validation_answers_every_error_at_once(client):
    answer = await client.put(
        "/plugins/wal_object_store/bucket/config/validate",
        json={"wal_object_store.bucket.timeout.ms": "0", "wal_object_store.bucket.ulr": "s3://x"},
    )

    errors = {config["name"]: config["errors"] for config in answer.json()["configs"]}
    assert answer.json()["error_count"] == 3
    assert "it has to be set" in errors["wal_object_store.bucket.url"][0]
    assert "greater than or equal to 1" in errors["wal_object_store.bucket.timeout.ms"][0]
    assert "did you mean wal_object_store.bucket.url?" in errors["wal_object_store.bucket.ulr"][0]


async def test_a_good_configuration_has_no_errors(client):
    answer = await client.put(
        "/plugins/wal_object_store/bucket/config/validate",
        json={"wal_object_store.bucket.url": "s3://x", "wal_object_store.bucket.password": "x" * 20},
    )

    assert answer.json()["error_count"] == 0
    assert [config["value"] for config in answer.json()["configs"]] == ["s3://x", None, None]


@pytest.mark.parametrize(
    "body",
    [
        {"wal_object_store.bucket.password": "hunter2"},
        {"wal_object_store.bucket.pasword": "hunter2"},
        {"wal_object_store.bucket.password": {"value": "hunter2"}},
        ["hunter2"],
    ],
)
async def test_a_secret_is_never_sent_back(client, body):
    answer = await client.put("/plugins/wal_object_store/bucket/config/validate", json=body)

    assert answer.status_code in (200, 422)
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(("path", "code"), [("nothing/bucket", 404), ("wal_object_store/broken", 409)])
async def test_a_plugin_that_is_missing_or_broken_is_an_error_in_connects_shape(client, path, code):
    answer = await client.get(f"/plugins/{path}/config")

    assert answer.status_code == code
    assert answer.json()["error_code"] == code
    assert answer.json()["message"]


async def test_the_coordinator_shards_are_shown_and_counted_only_when_asked(client):
    (plain,) = (await client.get("/coordinator/shards")).json()
    (counted,) = (await client.get("/coordinator/shards?count=true")).json()

    assert (plain["shard"], plain["leading"], plain["term"]) == ("__diskless_metadata-0", True, 4)
    assert (plain["log_start_offset"], plain["high_watermark"], plain["applied_offset"]) == (0, 9, 8)
    assert (plain["rows"], plain["objects"]) == ({"topics": 1}, None)
    assert (counted["rows"], counted["objects"]) == ({"topics": 1, "files": 3}, {"live": 2, "dead": 1})


@pytest.mark.parametrize("error", [CoordinatorLogError, CoordinatorStoreError])
async def test_a_backend_that_does_not_answer_is_an_error_with_its_message(client, shards, error):
    shards.error = error("the disk is full")

    answer = await client.get("/coordinator/shards")

    assert (answer.status_code, answer.json()) == (503, {"error_code": 503, "message": "the disk is full"})


async def test_a_parameter_that_makes_no_sense_is_named(client):
    answer = await client.get("/coordinator/shards?count=perhaps")

    assert answer.status_code == 422
    assert "the parameter count" in answer.json()["message"]


async def test_a_starting_broker_does_not_say_where_records_lie(client):
    answer = await client.get("/topics/layout")

    assert (answer.status_code, answer.json()["message"]) == (503, "the broker is starting or stopping")


async def test_the_selected_backends_are_shown_with_their_health(client):
    answer = (await client.get("/plugins/selected")).json()

    assert answer == SELECTED


async def test_the_openapi_document_describes_every_route(client):
    paths = (await client.get("/openapi.json")).json()["paths"]

    assert sorted(paths) == [
        "/cluster",
        "/compaction",
        "/compaction/driver",
        "/compaction/plan",
        "/compaction/{job_id}",
        "/compaction/{job_id}/driver",
        "/compaction/{job_id}/driver/end",
        "/compaction/{job_id}/driver/progress",
        "/compaction/{job_id}/driver/steps",
        "/coordinator/shards",
        "/health",
        "/health/cluster",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/orphans/scan",
        "/plugins",
        "/plugins/selected",
        "/plugins/{noun}/{name}/config",
        "/plugins/{noun}/{name}/config/validate",
        "/remote-log",
        "/remote-log/adopt",
        "/topics/layout",
    ]


@pytest.mark.parametrize(("query", "deleted"), [("", 2), ("?dry_run=true", 0), ("?dry_run=false", 2)])
async def test_a_scan_for_orphans_says_what_it_found(client, query, deleted):
    answer = await client.post(f"/orphans/scan{query}")

    assert answer.json() == {
        "threshold_ms": 7,
        "listed": 9,
        "candidates": 4,
        "orphans": ["a", "b"],
        "deleted": deleted,
    }


@pytest.mark.parametrize("kind", [CoordinatorError, WalObjectStoreError, OrphanDetectionError])
async def test_a_scan_that_cannot_be_done_is_unavailable(client, orphans, kind):
    orphans.error = kind("not now")
    answer = await client.post("/orphans/scan")

    assert (answer.status_code, answer.json()["message"]) == (503, "not now")


async def test_a_taken_port_is_an_error_at_start():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = AdminServer(Listener("http", "127.0.0.1", taken.getsockname()[1]), sources())
        with pytest.raises(OSError, match="in use"):
            server.bind()
    await server.stop()


async def test_signals_remain_the_brokers_business(client):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    await client.get("/health/live")

    assert {number: signal.getsignal(number) for number in handlers} == handlers


async def test_requests_before_the_start_wait_for_it():
    server = AdminServer(ANY_PORT, sources())
    server.bind()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        answer = asyncio.create_task(http.get("/health/live"))
        server.start()
        assert (await answer).status_code == 200
    await server.stop()


async def test_after_stop_the_port_is_free_even_when_it_never_came_to_serve():
    server = AdminServer(ANY_PORT, sources())
    server.bind()
    server.start()
    port = server.port
    await server.stop()
    await server.stop()

    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_stopping_does_not_wait_for_idle_connections():
    server = AdminServer(ANY_PORT, sources())
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        await http.get("/health/live")
        async with asyncio.timeout(5):
            await server.stop()


@pytest.fixture
async def remote_log_client():
    remote_log = StubRemoteLog()
    server = AdminServer(ANY_PORT, sources(remote_log=lambda: remote_log))
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield http, remote_log
    await server.stop()


async def test_remote_segments_are_shown_with_all_that_is_known_of_them(remote_log_client):
    client, remote_log = remote_log_client
    remote_log.known = [segment(1, 5, 9, epochs={4: 7, 0: 5}, custom_metadata=b"\xff\x00")]

    (shown,) = (await client.get("/remote-log")).json()

    assert (shown["topic_id"], shown["segment_id"]) == ("bwuKHFTESw6aLg9dHRx-AQ", "AAAAAAAAAAAAAAAAAAAAAQ")
    assert (shown["topic"], shown["partition"], shown["state"]) == ("orders", 3, "COPY_SEGMENT_STARTED")
    assert (shown["start_offset"], shown["end_offset"], shown["size_bytes"]) == (5, 9, 500)
    assert list(shown["leader_epochs"].items()) == [("0", 5), ("4", 7)]
    assert shown["custom_metadata"] == "/wA="
    assert RemoteSegment.model_validate(shown).metadata() == remote_log.known[0]


@pytest.mark.parametrize(
    ("query", "topics"),
    [
        ("", ["orders", "other"]),
        ("?topic=other", ["other"]),
        ("?partition=3", ["orders", "other"]),
        ("?topic=orders&partition=4", []),
    ],
)
async def test_remote_segments_can_be_asked_for_by_topic_and_partition(remote_log_client, query, topics):
    client, _ = remote_log_client

    assert [shown["topic"] for shown in (await client.get(f"/remote-log{query}")).json()] == topics


async def test_a_keeper_of_remote_segments_that_does_not_answer_is_unavailable(remote_log_client):
    client, remote_log = remote_log_client
    remote_log.error = RemoteLogMetadataError("the leader is gone")

    answer = await client.get("/remote-log")

    assert (answer.status_code, answer.json()["message"]) == (503, "the leader is gone")


async def test_segments_that_were_made_elsewhere_are_adopted_or_refused(remote_log_client):
    client, remote_log = remote_log_client
    shown = (await client.get("/remote-log?topic=orders")).json()
    body = {"topic": "orders", "partition": 3, "log_start_offset": 2, "segments": shown}

    assert (await client.post("/remote-log/adopt", json=body)).json() == {"segments": 1}
    assert remote_log.adopted == ("orders", 3, 2, remote_log.known[:1])
    remote_log.error = AdoptionError("orders-3 is not empty")
    refused = await client.post("/remote-log/adopt", json=body)
    assert (refused.status_code, refused.json()["message"]) == (409, "orders-3 is not empty")


async def test_a_topic_that_is_not_there_is_not_found(remote_log_client):
    client, _ = remote_log_client

    answer = await client.get("/remote-log?topic=missing")

    assert (answer.status_code, answer.json()["message"]) == (404, "there is no topic missing")


async def test_what_a_validator_says_of_a_value_is_kept_back(remote_log_client):
    client, _ = remote_log_client
    [shown] = (await client.get("/remote-log?topic=orders")).json()
    body = {"topic": "t", "partition": 3, "log_start_offset": 2, "segments": [shown | {"custom_metadata": "hunter2"}]}

    answer = await client.post("/remote-log/adopt", json=body)

    assert answer.status_code == 422
    assert "segments.0.custom_metadata: it is not valid" in answer.json()["message"]


async def test_a_partition_that_is_no_number_is_refused(remote_log_client):
    client, _ = remote_log_client

    answer = await client.get("/remote-log?partition=x")

    assert (answer.status_code, answer.json()["message"]) == (
        422,
        "the parameter partition has a value that it can't have",
    )


@pytest.mark.parametrize(
    ("header", "own", "other"), [("Diskless-Node-Id", "1", "2"), ("Diskless-Cluster-Id", "abc", "another")]
)
async def test_what_is_for_another_broker_or_cluster_is_refused_before_anything_is_done(header, own, other):
    asked = []

    async def scan(*, dry_run):
        asked.append(dry_run)
        raise OrphanDetectionError("no scan here")

    server = AdminServer(ANY_PORT, sources(orphans=scan, speaker=lambda: Speaker(node_id=1, cluster_id="abc")))
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        refused = await http.post("/orphans/scan", headers={header: other})
        assert (refused.status_code, asked) == (421, [])
        assert other in refused.json()["message"]
        await http.post("/orphans/scan", headers={header: own})
        assert asked == [False]
    await server.stop()


async def test_a_broker_that_does_not_know_its_cluster_yet_refuses_what_names_one_for_the_moment():
    server = AdminServer(ANY_PORT, sources(speaker=lambda: Speaker(node_id=1, cluster_id=None)))
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        refused = await http.get("/health/ready", headers={"Diskless-Cluster-Id": "abc"})
    await server.stop()
    assert refused.status_code == 503
    assert "Retry-After" in refused.headers


async def test_health_without_more_is_readiness(client):
    plain, ready = await client.get("/health"), await client.get("/health/ready")
    assert (plain.status_code, plain.json()) == (200, ready.json())
