"""The Compose file: read by Compose itself, and what it describes started as processes on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from diskless_core.broker.contexts import configured_contexts
from diskless_core.clock import SystemClock
from diskless_core.config.load import load_config
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import WAL_OBJECT_STORE
from tests.support.containers import DATA, Container, Image, Network
from tests.support.environments import PROJECT
from tests.support.moto_s3 import moto_s3
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("compose")

COMPOSE = PROJECT / "deploy" / "compose.yaml"
BROKERS = ("broker-1", "broker-2", "broker-3")
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def project() -> Any:
    """The file as Compose understands it, with all defaults and references put in."""
    compose = Path(sys.executable).with_name("docker-compose")
    without = {name: value for name, value in os.environ.items() if name not in ("S3_ACCESS_KEY", "S3_SECRET_KEY")}
    done = subprocess.run(
        [compose, "-f", COMPOSE, "config", "--format", "json"], capture_output=True, text=True, env=without
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def network(project: Any) -> Network:
    """The containers' network."""
    published = {}
    for name, service in project["services"].items():
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", "there is no authentication yet"
            assert int(port["published"]) not in published
            published[int(port["published"])] = (name, port["target"])
    return Network(published)


@pytest.fixture(scope="module")
def brokers(project: Any, network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Container]]:
    """The three of them, live, over a folder in the place of the bucket."""
    folder = tmp_path_factory.mktemp("compose")
    image = Image()
    containers = {}
    for name in BROKERS:
        properties = properties_of(folder / f"{name}.properties", name, network)
        arguments = [one.replace("/etc/diskless/server.properties", str(properties)) for one in image.command]
        environment = {
            key: re.sub("^s3:/", folder.as_uri(), value)
            for key, value in project["services"][name]["environment"].items()
        }
        containers[name] = Container(folder / name, name, arguments, environment, network)
    try:
        for container in containers.values():
            # one after the other: they all try out the same folder at first, under one lock
            container.start()
            container.wait_for("/health", 200)
        yield containers
    finally:
        for container in containers.values():
            container.end()


def properties_of(path: Path, name: str, network: Network) -> Path:
    """Write what the image of a broker has for properties."""
    text = (PROJECT / "deploy" / "server.properties").read_text()
    path.write_text(network.translate(text.replace(DATA, str(path.with_suffix("") / "data")), name))
    return path


def buckets(project: Any) -> list[str]:
    """The buckets of the S3 server: the folders that volumes are mounted at."""
    mounts = [volume["target"] for volume in project["services"]["s3"]["volumes"]]
    return [target.removeprefix("/data/") for target in mounts if target.startswith("/data/")]


def test_no_service_can_write_its_image_or_gain_rights(project: Any) -> None:
    for service in project["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_a_broker_is_built_here_and_writes_to_one_volume(project: Any) -> None:
    for name in BROKERS:
        service = project["services"][name]
        assert [volume["target"] for volume in service["volumes"]] == [Image().one("VOLUME")]
        assert (PROJECT / service["build"]["dockerfile"]).exists() or Path(service["build"]["dockerfile"]).exists()
        assert Path(service["build"]["context"]).resolve() == PROJECT.resolve()


def test_nobody_shares_a_volume(project: Any) -> None:
    sources = [volume["source"] for service in project["services"].values() for volume in service["volumes"]]

    assert len(set(sources)) == len(sources)
    assert set(sources) == set(project["volumes"])


def test_brokers_keep_their_objects_in_a_bucket_that_there_is(project: Any) -> None:
    for name in BROKERS:
        environment = project["services"][name]["environment"]
        urls = [value for key, value in environment.items() if key.endswith("FSSPEC_URL")]
        assert {url.removeprefix("s3://").partition("/")[0] for url in urls} == set(buckets(project))
        assert environment["AWS_ACCESS_KEY_ID"] == project["services"]["s3"]["environment"]["ROOT_ACCESS_KEY"]
        assert environment["AWS_SECRET_ACCESS_KEY"] == project["services"]["s3"]["environment"]["ROOT_SECRET_KEY"]


async def test_the_credentials_and_addresses_of_a_broker_write_to_the_bucket(
    project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = project["services"]["s3"]["environment"]
    [bucket] = buckets(project)
    with moto_s3() as port:
        network = Network()
        network.bind("s3", 7070, port)
        environment = {
            key: value if "LISTENERS" in key else network.translate(value, "broker-1")
            for key, value in project["services"]["broker-1"]["environment"].items()
        }
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, environment[name])
        s3 = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id=secrets["ROOT_ACCESS_KEY"],
            aws_secret_access_key=secrets["ROOT_SECRET_KEY"],
            region_name="us-east-1",
        )
        s3.create_bucket(Bucket=bucket)

        plugins = PluginManager.discover({})
        loaded = load_config(
            properties_of(tmp_path / "broker-1.properties", "broker-1", network), [], environment, plugins
        )
        contexts = configured_contexts(loaded, plugins, SystemClock(), node_id=TOOL_NODE_ID)
        store = plugins.create(WAL_OBJECT_STORE, loaded.plugins, contexts)
        try:
            await store.start()
            await store.put("wal/an-object", b"kept")
        finally:
            await store.stop()

        assert s3.get_object(Bucket=bucket, Key="records/wal/an-object")["Body"].read() == b"kept"


def test_three_brokers_in_three_racks_are_one_cluster(brokers: dict[str, Container]) -> None:
    told = brokers["broker-2"].json("/cluster")

    assert {broker["node_id"]: broker["rack"] for broker in told["brokers"]} == {
        1: "rack-1",
        2: "rack-2",
        3: "rack-3",
    }
    for container in brokers.values():
        container.wait_for_check(healthy=True, told="200 ")


def test_clients_of_the_host_produce_and_consume(brokers: dict[str, Container], network: Network, topic: str) -> None:
    bootstrap = {name: network.address("localhost", int(f"{number}9092")) for number, name in enumerate(BROKERS, 1)}
    admin = AdminClient({"bootstrap.servers": bootstrap["broker-1"]})

    def told() -> set[str]:
        return {f"{broker.host}:{broker.port}" for broker in admin.list_topics(timeout=LIMIT_S).brokers.values()}

    wait_until(lambda: told() == set(bootstrap.values()), "clients of the host are told addresses of the host")

    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap["broker-1"], "enable.idempotence": True})
    for number in range(100):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(LIMIT_S) == 0
    assert failed == []

    settings = {"bootstrap.servers": bootstrap["broker-3"], "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        read: set[int] = set()

        def all_read() -> bool:
            for message in consumer.consume(100, 0.5):
                assert message.error() is None, message.error()
                read.add(int(message.value() or b""))
            return len(read) == 100

        wait_until(all_read, "all records are read")
    finally:
        consumer.close()


def test_a_broker_that_is_stopped_ends_in_good_order_and_comes_back(brokers: dict[str, Container]) -> None:
    container = brokers["broker-3"]

    assert container.stop() == 0
    container.start()
    container.wait_for("/health", 200)
