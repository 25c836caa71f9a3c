"""Dashboards and alerts: they are what the metrics' declarations make, and Prometheus takes them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown.extensions.toc import slugify

from diskless_core.cli import alert_rules, dashboards, docs
from diskless_core.metrics import Metrics
from tests.support.environments import PROJECT
from tests.support.promtool import promtool

ALERTS = PROJECT / "deploy" / "prometheus" / "alerts.yaml"
EXPECTATIONS = Path(__file__).with_name("alerts_test.yaml")
DASHBOARDS = sorted((PROJECT / "deploy" / "grafana").glob("*.json"))
RULES = [alert for group in alert_rules.GROUPS.values() for alert in group]
SERIES = re.compile(r"\bdiskless_\w+")


def series_of_brokers() -> set[str]:
    """The names of everything that a broker exports of its own."""
    names = set()
    for metric in Metrics().descriptions:
        suffixes = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        names |= {metric.name + suffix for suffix in suffixes}
    return names


def expressions(dashboard: Path) -> list[str]:
    """The PromQL of all panels."""
    return [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]


def panels(dashboard: Path) -> list[dict[str, Any]]:
    """All panels of a dashboard."""
    found: list[dict[str, Any]] = json.loads(dashboard.read_text())["panels"]
    return found


@pytest.mark.parametrize("name", docs.FILES)
def test_a_generated_file_is_what_the_code_renders(name: str) -> None:
    assert (PROJECT / name).read_text() == docs.FILES[name](), "write it anew with `make docs`"


def test_no_file_of_dashboards_is_left_over() -> None:
    kept = [*(PROJECT / "deploy" / "grafana").iterdir(), *(PROJECT / "deploy/helm/diskless/files").rglob("*.json")]

    assert {str(path.relative_to(PROJECT)) for path in kept} <= set(docs.FILES)


@pytest.mark.parametrize("alert", RULES, ids=lambda alert: alert.name)
def test_an_alert_asks_for_metrics_that_brokers_have(alert: alert_rules.Alert) -> None:
    named = set(SERIES.findall(alert.expr))

    assert named <= series_of_brokers()
    assert named or alert.expr.startswith("up{")


@pytest.mark.parametrize("alert", RULES, ids=lambda alert: alert.name)
def test_an_alert_names_a_section_of_the_documentation(alert: alert_rules.Alert) -> None:
    page, _, anchor = alert.page.partition("#")
    headings = re.findall(r"^#+ (.*)$", (PROJECT / "docs" / page).read_text(), re.M)

    assert anchor in {slugify(heading.replace("`", ""), "-") for heading in headings}


def test_every_metric_to_watch_is_on_a_dashboard() -> None:
    shown = {name for path in DASHBOARDS for expr in expressions(path) for name in SERIES.findall(expr)}
    declared = series_of_brokers()

    assert shown <= declared
    assert {name for name in declared if not name.endswith(("_sum", "_count"))} <= shown


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_of_a_dashboard_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(path):
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= dashboards.COLUMNS
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels(path)}) == len(panels(path))


def test_dashboards_have_names_of_their_own() -> None:
    models = [json.loads(path.read_text()) for path in DASHBOARDS]

    assert len({model["uid"] for model in models}) == len({model["title"] for model in models}) == len(models) == 7


def test_prometheus_takes_the_rules_and_the_queries_of_all_panels(tmp_path: Path) -> None:
    queries = [expr.replace("$__rate_interval", "5m") for path in DASHBOARDS for expr in expressions(path)]
    rules = [{"record": f"panel:number{number}", "expr": expr} for number, expr in enumerate(queries)]
    as_rules = tmp_path / "panels.yaml"
    as_rules.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    done = subprocess.run([promtool(), "check", "rules", ALERTS, as_rules], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(RULES)} rules found" in done.stdout
    assert f"SUCCESS: {len(queries)} rules found" in done.stdout


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    tests = yaml.safe_load(EXPECTATIONS.read_text())
    tests["rule_files"] = [str(ALERTS)]
    resolved = tmp_path / "tests.yaml"
    resolved.write_text(yaml.safe_dump(tests))

    done = subprocess.run([promtool(), "test", "rules", resolved], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
