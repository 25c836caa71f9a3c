"""The Helm chart: what Helm makes of it, and whether Kubernetes would take that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.environments import PROJECT
from tests.support.helm import NAMESPACE, RELEASE, Rendered, render

pytestmark = pytest.mark.xdist_group("chart")

CHART = PROJECT / "deploy" / "helm" / "diskless"
OPERATORS = "monitoring.coreos.com/v1"
KUBERNETES = ("1.28", "1.31", "1.35", "1.37")
"""From the oldest that the chart says it needs to the newest whose schemas there are."""

PLACES = {"objectStore": {"url": "s3://records/wal", "segmentsUrl": "s3://records/segments"}}
REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "objectStore.url is needed"),
    "no-segments": ({"objectStore": {"url": "s3://records/wal"}}, "objectStore.segmentsUrl is needed"),
    "misspelt": ({**PLACES, "replicas": 3}, "replicas"),
    "no-url": ({"objectStore": {"url": "records", "segmentsUrl": "records"}}, "url"),
    "rack": ({**PLACES, "rack": {"from": "zone"}}, "from"),
    "no-place-for-backups": (
        {**PLACES, "backup": {"enabled": True, "segmentsUrl": "s3://backups/segments"}},
        "backup.url is needed",
    ),
    "no-place-for-segments": (
        {**PLACES, "backup": {"enabled": True, "url": "s3://backups/wal"}},
        "backup.segmentsUrl is needed",
    ),
    "no-domain": ({**PLACES, "externalAccess": {"enabled": True}}, "externalAccess.domain is needed"),
}
"""Values that are wrong, and what the operator is told."""

GOOD = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rendered]:
    """What became of the chart, by the name of the values."""
    folder = tmp_path_factory.mktemp("values")
    files = {name: CHART / "ci" / f"{name}.yaml" for name in GOOD}
    for name, (values, _) in REFUSED.items():
        files[name] = folder / f"{name}.yaml"
        files[name].write_text(yaml.safe_dump(values))
    return dict(zip(files, render(CHART, list(files.values())), strict=True))


@pytest.fixture(params=GOOD)
def chart(request: pytest.FixtureRequest, charts: dict[str, Rendered]) -> Rendered:
    """The chart with each file of values that is kept with it."""
    return charts[request.param]


def pod_of(chart: Rendered) -> Any:
    """The template of the brokers' pods."""
    return chart.one("StatefulSet")["spec"]["template"]


def backup_of(chart: Rendered) -> Any:
    """The template of the pods that make backups."""
    return chart.one("CronJob")["spec"]["jobTemplate"]["spec"]["template"]


def other_pods(chart: Rendered) -> list[Any]:
    """All pods that the chart ever starts, or their templates, but for brokers."""
    return [*chart.of_kind("Pod"), *(backup_of(chart) for _ in chart.of_kind("CronJob"))]


def containers_of(chart: Rendered) -> list[Any]:
    """All containers that the chart ever starts."""
    specs = [pod["spec"] for pod in (pod_of(chart), *other_pods(chart))]
    return [one for spec in specs for kind in ("initContainers", "containers") for one in spec.get(kind, [])]


def properties_in(chart: Rendered, config_map: str, file: str) -> dict[str, str]:
    """The properties in a file of a ConfigMap."""
    lines = chart.one("ConfigMap", config_map)["data"][file].splitlines()
    return dict(line.split("=", 1) for line in lines)


def selects(service: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a Service sends anything to a pod with these labels."""
    return service["spec"]["selector"].items() <= labels.items()


def test_helm_has_nothing_to_say_about_it(chart: Rendered) -> None:
    assert chart.error is None
    assert chart.findings == []


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_are_wrong_are_refused_by_their_names(charts: dict[str, Rendered], name: str) -> None:
    error = charts[name].error

    assert error is not None
    assert REFUSED[name][1] in error


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_every_manifest(chart: Rendered, version: str) -> None:
    for manifest in chart.manifests:
        if manifest["apiVersion"] != OPERATORS:
            kubernetes_validate.validate(dict(manifest), version, strict=True)


def test_the_schemas_would_find_a_mistake(charts: dict[str, Rendered]) -> None:
    service = dict(charts["minimal"].one("Service", f"{RELEASE}-diskless"))
    wrong = service | {"spec": service["spec"] | {"port": 9092}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[-1], strict=True)


def test_nothing_runs_as_root_writes_its_image_or_keeps_a_capability(chart: Rendered) -> None:
    for container in containers_of(chart):
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
    for pod in (pod_of(chart), *other_pods(chart)):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_ports_volumes_and_names_that_are_referred_to_exist(chart: Rendered) -> None:
    pod = pod_of(chart)
    [broker] = pod["spec"]["containers"]
    ports = {port["name"] for port in broker["ports"]}
    for service in chart.of_kind("Service"):
        assert selects(service, pod["metadata"]["labels"] | {"statefulset.kubernetes.io/pod-name": pod_name(service)})
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for policy in chart.of_kind("NetworkPolicy"):
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == ports

    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in chart.one("StatefulSet")["spec"].get("volumeClaimTemplates", [])}
    assert {mount["name"] for one in containers_of(chart) for mount in one.get("volumeMounts", [])} == volumes
    maps = {one["metadata"]["name"] for one in chart.of_kind("ConfigMap")}
    for template in (pod, *other_pods(chart)):
        used = [volume for volume in template["spec"].get("volumes", []) if "configMap" in volume]
        assert {volume["configMap"]["name"] for volume in used} <= maps

    headless = chart.one("Service", chart.one("StatefulSet")["spec"]["serviceName"])
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    for other in other_pods(chart):
        assert not any(selects(service, other["metadata"]["labels"]) for service in chart.of_kind("Service"))


def test_named_clients_are_joined_by_the_brokers_and_the_test_of_the_release(
    charts: dict[str, Rendered],
) -> None:
    full = charts["full"]
    rules = {port["port"]: rule for rule in full.one("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]}
    let_in = [one["podSelector"]["matchLabels"].items() for one in rules["kafka"]["from"] if "podSelector" in one]
    for pod in (pod_of(full), full.one("Pod")):
        assert any(labels <= pod["metadata"]["labels"].items() for labels in let_in)


@pytest.mark.parametrize("rack", ["nodeLabel", "podLabel"])
def test_a_pod_without_a_rack_does_not_start(rack: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({**PLACES, "rack": {"from": rack}}))
    [chart] = render(CHART, [values])
    [init] = pod_of(chart)["spec"]["initContainers"]
    assert init["name"] == "rack"
    if rack == "podLabel":
        for found, code in (("", 1), ("eu-1a", 0)):
            done = subprocess.run([sys.executable, *init["command"][1:], *init["args"]], env={"RACK": found})
            assert done.returncode == code


def pod_name(service: Mapping[str, Any]) -> str:
    """The pod that a Service is for, if for one alone."""
    name: str = service["spec"]["selector"].get("statefulset.kubernetes.io/pod-name", "")
    return name


def test_an_upgrade_takes_one_broker_at_a_time_and_gives_it_time_to_stop(chart: Rendered) -> None:
    stateful = chart.one("StatefulSet")["spec"]
    pod = stateful["template"]["spec"]
    [broker] = pod["containers"]
    waits_s = int(broker["lifecycle"]["preStop"]["exec"]["command"][1])

    assert stateful["updateStrategy"] == {"type": "RollingUpdate"}
    assert pod["terminationGracePeriodSeconds"] > waits_s + 5 + 10
    assert all(budget["spec"]["maxUnavailable"] == 1 for budget in chart.of_kind("PodDisruptionBudget"))


def test_a_change_of_the_configuration_replaces_the_pods(charts: dict[str, Rendered]) -> None:
    def checksum(name: str) -> str:
        found: str = pod_of(charts[name])["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum("minimal") == checksum("node-label") != checksum("full")


def test_the_autoscaler_alone_decides_how_many_brokers_there_are(charts: dict[str, Rendered]) -> None:
    assert "replicas" not in charts["full"].one("StatefulSet")["spec"]
    assert charts["full"].one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == f"{RELEASE}-diskless"
    assert charts["minimal"].one("StatefulSet")["spec"]["replicas"] == 3
    assert not charts["minimal"].of_kind("HorizontalPodAutoscaler")


def test_every_broker_that_may_come_is_reached_from_outside(charts: dict[str, Rendered]) -> None:
    external = [one for one in charts["full"].of_kind("Service") if one["spec"].get("type") == "LoadBalancer"]

    assert [pod_name(service) for service in external] == [f"{RELEASE}-diskless-{number}" for number in range(5)]
    hosts = [next(iter(service["metadata"]["annotations"].values())) for service in external]
    assert hosts == [f"{RELEASE}-diskless-{number}.kafka.example.org" for number in range(5)]


def test_the_kubernetes_api_is_asked_for_nothing_but_the_label_of_a_node(charts: dict[str, Rendered]) -> None:
    asking = charts["node-label"]
    [rule] = asking.one("ClusterRole")["rules"]
    assert rule == {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    [subject] = asking.one("ClusterRoleBinding")["subjects"]
    assert subject["namespace"] == NAMESPACE
    assert subject["name"] == pod_of(asking)["spec"]["serviceAccountName"]

    for name in ("full", "ephemeral"):
        assert pod_of(charts[name])["spec"]["automountServiceAccountToken"] is False
        assert not charts[name].of_kind("ClusterRole")


def test_secrets_are_named_and_never_written(charts: dict[str, Rendered]) -> None:
    [broker] = pod_of(charts["full"])["spec"]["containers"]
    named = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]["name"]
        for variable in broker["env"]
        if "secretKeyRef" in variable.get("valueFrom", {})
    }

    assert named == {"AWS_ACCESS_KEY_ID": "s3-credentials", "AWS_SECRET_ACCESS_KEY": "s3-credentials"}


@pytest.mark.parametrize("name", ["full", "ephemeral"])
def test_backups_are_made_of_what_the_brokers_have_and_go_elsewhere(charts: dict[str, Rendered], name: str) -> None:
    chart = charts[name]
    of_brokers = properties_in(chart, f"{RELEASE}-diskless", "server.properties")
    restored = properties_in(chart, f"{RELEASE}-diskless-backup", "restored.properties")
    [container] = backup_of(chart)["spec"]["containers"]
    [broker] = pod_of(chart)["spec"]["containers"]
    copied = properties_in(chart, f"{RELEASE}-diskless-backup", "server.properties")

    # A tool opens no listener, and has no pod's name to say where it is.
    assert {key: value for key, value in copied.items() if key != "advertised.listeners"} == of_brokers
    assert restored.keys() >= copied.keys()
    changed = {key for key in restored if restored[key] != copied.get(key)}
    assert {"wal_object_store.fsspec.url", "remote_storage.fsspec.url"} <= changed
    assert all(key.startswith(("wal_object_store.fsspec.", "remote_storage.fsspec.")) for key in changed)
    assert backup_of(chart)["spec"]["serviceAccountName"] == pod_of(chart)["spec"]["serviceAccountName"]
    secrets = [variable for variable in broker["env"] if "secretKeyRef" in variable.get("valueFrom", {})]
    assert [variable for variable in container.get("env", []) if variable in secrets] == secrets


def test_two_backups_are_never_made_at_once(charts: dict[str, Rendered]) -> None:
    schedule = charts["full"].one("CronJob")["spec"]

    assert schedule["schedule"] == "@hourly"
    assert schedule["concurrencyPolicy"] == "Forbid"
    assert not charts["minimal"].of_kind("CronJob")


def test_prometheus_finds_the_brokers_once_and_gets_the_alerts(charts: dict[str, Rendered]) -> None:
    full = charts["full"]
    monitor = full.one("ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    [service] = [one for one in full.of_kind("Service") if wanted <= one["metadata"]["labels"].items()]
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "diskless"

    alerts = yaml.safe_load((PROJECT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    for rule in rules_of(alerts):
        page = rule["annotations"].pop("runbook")
        rule["annotations"]["runbook_url"] = f"https://docs.example.org/diskless/{page.replace('.md#', '/#')}"
    assert full.one("PrometheusRule")["spec"] == alerts
    dashboards = full.one("ConfigMap", f"{RELEASE}-diskless-dashboards")["data"]
    assert dashboards == {path.name: path.read_text() for path in Path(PROJECT / "deploy" / "grafana").glob("*.json")}


def rules_of(alerts: Any) -> Iterator[Any]:
    """All rules of a file of Prometheus."""
    return (rule for group in alerts["groups"] for rule in group["rules"])


def test_an_operator_is_told_where_clients_connect(chart: Rendered) -> None:
    told = partial(str.__contains__, chart.notes)

    assert told(f"{RELEASE}-diskless.{NAMESPACE}.svc.cluster.local:9092")
    assert told("diskless cluster status -b localhost:9092")
