"""What the Helm chart describes, started as processes: its properties, variables, init container and probes."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.support.batches import batch_of, read_values
from tests.support.certificates import self_signed
from tests.support.containers import DATA, Container, Network
from tests.support.environments import PROJECT
from tests.support.helm import NAMESPACE, RELEASE, Rendered, render
from tests.support.requests import append, create_topic, fetch
from tests.support.waiting import wait_until
from tests.support.wire import WireClient

pytestmark = pytest.mark.xdist_group("chart-runs")

CHART = PROJECT / "deploy" / "helm" / "diskless"
NODES = {"node-a": {"topology.kubernetes.io/zone": "zone-a"}, "node-b": {"topology.kubernetes.io/zone": "zone-b"}}
TOKEN = "a-token"
PODS = {f"{RELEASE}-diskless-0": "node-a", f"{RELEASE}-diskless-1": "node-b"}


class KubernetesApi(BaseHTTPRequestHandler):
    """Tells of nodes, as far as the init container asks."""

    def do_GET(self) -> None:
        """One node, for those who have the token."""
        node = self.path.removeprefix("/api/v1/nodes/")
        status = 403 if self.headers["Authorization"] != f"Bearer {TOKEN}" else 200 if node in NODES else 404
        body = json.dumps({"kind": "Node", "metadata": {"name": node, "labels": NODES.get(node, {})}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a pod knows of the Kubernetes API, which runs meanwhile."""
    folder = tmp_path_factory.mktemp("account")
    certificate, key = self_signed("127.0.0.1")
    (folder / "ca.crt").write_bytes(certificate)
    (folder / "key.pem").write_bytes(key)
    (folder / "token").write_text(TOKEN)
    server = ThreadingHTTPServer(("127.0.0.1", 0), KubernetesApi)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.server_port),
            "SERVICE_ACCOUNT_FOLDER": str(folder),
        }
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """The chart, with folders of this machine in the place of buckets."""
    folder = tmp_path_factory.mktemp("chart")
    values = folder / "values.yaml"
    places = {"url": (folder / "records").as_uri(), "segmentsUrl": (folder / "segments").as_uri()}
    elsewhere = {"url": (folder / "copied").as_uri(), "segmentsUrl": (folder / "copied-segments").as_uri()}
    chosen = {
        "objectStore": places,
        "rack": {"from": "nodeLabel"},
        "externalAccess": {"enabled": True, "domain": "kafka.example.org"},
        "backup": {"enabled": True, **elsewhere},
    }
    values.write_text(yaml.safe_dump(chosen))
    [rendered] = render(CHART, [values])
    assert rendered.error is None
    return rendered


def host_of(pod: str) -> str:
    """The name of a pod in Kubernetes' DNS, as the StatefulSet's Service makes it."""
    return f"{pod}.{RELEASE}-diskless-brokers.{NAMESPACE}.svc.cluster.local"


def variables(container: Mapping[str, Any], pod: str) -> dict[str, str]:
    """The variables of a container, as the kubelet makes them for a pod."""
    fields = {"metadata.name": pod, "metadata.namespace": NAMESPACE, "spec.nodeName": PODS[pod]}
    made: dict[str, str] = {}
    for variable in container["env"]:
        if "valueFrom" in variable:
            made[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            made[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: made[name[1]], variable["value"])
    return made


def rack_of(chart: Rendered, pod: str, account: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a pod's init container, for which /etc is below `folder`."""
    [init] = chart.one("StatefulSet")["spec"]["template"]["spec"]["initContainers"]
    for mount in init["volumeMounts"]:
        (folder / mount["mountPath"].lstrip("/")).mkdir(parents=True)
    for name, text in chart.one("ConfigMap", f"{RELEASE}-diskless")["data"].items():
        (folder / "etc/diskless-chart" / name).write_text(text)
    words = [word.replace("/etc/", f"{folder}/etc/") for word in (*init["command"], *init["args"])]
    assert words[0] == "/opt/diskless/bin/python"
    return subprocess.run(
        [sys.executable, *words[1:]],
        env={**variables(init, pod), **account},
        capture_output=True,
        text=True,
    )


def started(chart: Rendered, pod: str, account: Mapping[str, str], folder: Path, network: Network) -> Container:
    """A pod's broker, after its init container."""
    done = rack_of(chart, pod, account, folder)
    assert done.returncode == 0, done.stderr
    [broker] = chart.one("StatefulSet")["spec"]["template"]["spec"]["containers"]
    properties = folder / "etc/diskless/server.properties"
    text = properties.read_text().replace(DATA, str(folder / "data"))
    properties.write_text(network.translate(text, host_of(pod)))
    arguments = [word.replace("/etc/", f"{folder}/etc/") for word in broker["args"]]
    container = Container(folder, host_of(pod), arguments, variables(broker, pod), network)
    # the outside knows the same ports by another name
    container.environment = {
        name: value.replace(f"{pod}.kafka.example.org:9094", network.address(host_of(pod), 9094))
        for name, value in container.environment.items()
    }
    container.start()
    return container


class PodNetwork(Network):
    """Only brokers have addresses in it, and what is advertised to the outside stays as it is."""

    def address(self, host: str, port: int) -> str:
        """As it is told, unless it is a broker's."""
        return super().address(host, port) if host in map(host_of, PODS) else f"{host}:{port}"


@pytest.fixture(scope="module")
def network() -> PodNetwork:
    """The pods' network."""
    return PodNetwork()


@pytest.fixture(scope="module")
def brokers(
    chart: Rendered, account: dict[str, str], network: PodNetwork, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Container]]:
    """Two brokers, ready by their own probes."""
    running: list[Container] = []
    [broker] = chart.one("StatefulSet")["spec"]["template"]["spec"]["containers"]
    try:
        for pod in PODS:
            # one after the other: they all try out the same folder at first, under one lock
            running.append(started(chart, pod, account, tmp_path_factory.mktemp(pod), network))
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert broker[probe]["httpGet"]["port"] == "http"
                running[-1].wait_for(broker[probe]["httpGet"]["path"], 200)
        yield running
    finally:
        for container in running:
            container.end()


def test_brokers_are_given_ids_and_take_their_racks_from_their_nodes(brokers: list[Container]) -> None:
    told = brokers[0].json("/cluster")["brokers"]

    assert sorted(broker["node_id"] for broker in told) == [1, 2]
    assert sorted(broker["rack"] for broker in told) == ["zone-a", "zone-b"]


def test_records_that_one_broker_takes_are_read_from_another(
    brokers: list[Container], network: PodNetwork, topic: str
) -> None:
    first, second = (network.address(container.host, 9092).split(":") for container in brokers)
    with WireClient(first[0], int(first[1])) as wire:
        create_topic(wire, topic)
        append(wire, topic, batch_of(b"kept"))
    with WireClient(second[0], int(second[1])) as wire:
        found = wait_until(lambda: fetch(wire, topic, 0).records, "the other broker knows of the record")
    assert read_values(found) == [b"kept"]


def test_the_job_backs_up_the_cluster_while_it_runs(
    chart: Rendered, brokers: list[Container], network: PodNetwork, topic: str, tmp_path: Path
) -> None:
    host, port = network.address(brokers[0].host, 9092).split(":")
    with WireClient(host, int(port)) as wire:
        create_topic(wire, topic)
        append(wire, topic, batch_of(b"kept"))
    [job] = chart.one("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    for file, text in chart.one("ConfigMap", f"{RELEASE}-diskless-backup")["data"].items():
        (tmp_path / file).write_text(text.replace(DATA, str(tmp_path / "data")))
    arguments = [word.replace("/etc/diskless", str(tmp_path)) for word in job["args"]]

    done = subprocess.run(
        [sys.executable, "-c", "from diskless_core.cli.main import main; main()", *arguments],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert "It has everything that was acknowledged before" in done.stdout


def test_clients_from_outside_are_told_addresses_of_the_outside(brokers: list[Container], network: PodNetwork) -> None:
    for container in brokers:
        advertised = container.environment["DISKLESS_CONFIG_ADVERTISED_LISTENERS"]
        assert f"EXTERNAL://{network.address(container.host, 9094)}" in advertised


def test_a_node_without_the_label_ends_the_start_with_what_to_do(
    chart: Rendered, account: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NODES, "node-a", {})

    done = rack_of(chart, f"{RELEASE}-diskless-0", account, tmp_path)

    assert done.returncode == 1
    assert "the node node-a has no label topology.kubernetes.io/zone" in done.stderr


def test_a_node_that_may_not_be_read_ends_the_start(chart: Rendered, account: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("another")
    (tmp_path / "ca.crt").write_bytes((Path(account["SERVICE_ACCOUNT_FOLDER"]) / "ca.crt").read_bytes())

    done = rack_of(
        chart, f"{RELEASE}-diskless-0", {**account, "SERVICE_ACCOUNT_FOLDER": str(tmp_path)}, tmp_path / "root"
    )

    assert done.returncode == 1
    assert "the rack cannot be read from the node node-a" in done.stderr
