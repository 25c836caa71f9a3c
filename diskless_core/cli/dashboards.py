"""The Grafana dashboards of `deploy/`, made from the metrics' declarations.

Every metric has a panel, which follows from its type, its labels and its name. It is on the dashboard with the longest
prefix of its name, so a new metric finds its place by itself. Only the overview is put together by hand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diskless_core.metrics import MetricDescription, Metrics

COLUMNS = 24
"""Grafana's grid is so wide."""

_SELECTED = 'job=~"$job", instance=~"$instance"'
_WINDOW = "$__rate_interval"
_ROW_HEIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A graph: queries with the names of their lines.

    Attributes:
        queries: PromQL, each with its legend.
        unit: as Grafana calls it.
    """

    title: str
    description: str
    queries: Sequence[tuple[str, str]]
    unit: str
    width: int = COLUMNS // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard.

    Attributes:
        name: of its file, and in its uid.
        prefixes: what the names of its metrics begin with, without `diskless_`.
        panels: those that come before the metrics'.
    """

    name: str
    title: str
    prefixes: Sequence[str] = ()
    panels: Sequence[Panel] = ()


def _rate(counter: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({counter}{{{_SELECTED}}}[{_WINDOW}]))"


def _quantile(histogram: str, quantile: float, labels: Sequence[str] = ()) -> str:
    by = ", ".join((*labels, "le"))
    return f"histogram_quantile({quantile}, sum by ({by}) (rate({histogram}_bucket{{{_SELECTED}}}[{_WINDOW}])))"


_OVERVIEW = (
    Panel(
        title="Brokers",
        description="Live and fenced brokers, as the one knows that knows of the fewest or the most.",
        queries=(
            (f"min(diskless_active_brokers{{{_SELECTED}}})", "live"),
            (f"max(diskless_fenced_brokers{{{_SELECTED}}})", "fenced"),
        ),
        unit="short",
        width=8,
    ),
    Panel(
        title="Leaders of each coordinator",
        description="1, but while a coordinator moves.",
        queries=((f"sum by (shard) (diskless_coordinator_leading{{{_SELECTED}}})", "{{shard}}"),),
        unit="short",
        width=8,
    ),
    Panel(
        title="Coordinators that a broker leads",
        description="They are spread over the live brokers.",
        queries=((f"sum by (instance) (diskless_coordinator_leading{{{_SELECTED}}})", "{{instance}}"),),
        unit="short",
        width=8,
    ),
    Panel(
        title="Produced",
        description="Bytes of record batches acknowledged, compressed as sent.",
        queries=((_rate("diskless_produce_bytes_total"), "{{instance}}"),),
        unit="Bps",
    ),
    Panel(
        title="Consumed",
        description="Bytes of record batches sent to consumers, by where they came from.",
        queries=((_rate("diskless_fetch_bytes_total", "source"), "{{source}}"),),
        unit="Bps",
    ),
    Panel(
        title="Produce requests",
        description="From a request's last byte to its answer.",
        queries=tuple(
            (
                (
                    f"histogram_quantile({quantile}, sum by (le) (rate(diskless_request_seconds_bucket"
                    f'{{{_SELECTED}, api="Produce"}}[{_WINDOW}])))'
                ),
                f"p{quantile * 100:.0f}",
            )
            for quantile in (0.5, 0.99)
        ),
        unit="s",
    ),
    Panel(
        title="What a produce request waits for",
        description="99 of 100 writes of an object, 99 of 100 commits, and 99 of 100 waits before them take less.",
        queries=(
            (_quantile("diskless_wal_upload_seconds", 0.99), "upload"),
            (_quantile("diskless_commit_seconds", 0.99), "commit"),
            (
                (
                    f"histogram_quantile(0.99, sum by (le, stage) "
                    f"(rate(diskless_produce_wait_seconds_bucket{{{_SELECTED}}}[{_WINDOW}])))"
                ),
                "{{stage}}",
            ),
        ),
        unit="s",
    ),
    Panel(
        title="Requests to the object store",
        description="What a provider bills: objects written and ranges read, the log and its snapshots not counted.",
        queries=(
            (f"sum(rate(diskless_wal_objects_uploaded_total{{{_SELECTED}}}[{_WINDOW}]))", "objects written"),
            (f"sum(rate(diskless_store_reads_total{{{_SELECTED}}}[{_WINDOW}]))", "ranges read"),
        ),
        unit="reqps",
    ),
    Panel(
        title="Errors",
        description="Each should be 0.",
        queries=tuple(
            (f"sum(rate({name}{{{_SELECTED}}}[{_WINDOW}]))", name.removeprefix("diskless_").removesuffix("_total"))
            for name in (
                "diskless_request_errors_total",
                "diskless_log_lines_lost_total",
                "diskless_wal_upload_failures_total",
                "diskless_store_read_failures_total",
                "diskless_remote_fetch_errors_total",
                "diskless_remote_copy_errors_total",
                "diskless_coordinator_flush_failures_total",
                "diskless_coordinator_snapshot_failures_total",
            )
        ),
        unit="ops",
    ),
)

_LAGS = (
    Panel(
        title="Behind the log",
        description="Offsets of the log that a copy has not applied.",
        queries=(
            (
                (
                    f"diskless_coordinator_log_end_offset{{{_SELECTED}}} - "
                    f"diskless_coordinator_applied_offset{{{_SELECTED}}}"
                ),
                "{{instance}} {{shard}}",
            ),
        ),
        unit="short",
    ),
    Panel(
        title="Changes of leaders",
        description="How often a broker began or ceased to lead a coordinator, in an hour.",
        queries=((f"sum by (shard) (changes(diskless_coordinator_leading{{{_SELECTED}}}[1h]))", "{{shard}}"),),
        unit="short",
    ),
)

_PROCESS = (
    Panel(
        title="Resident memory",
        description="Of the broker's process.",
        queries=((f"process_resident_memory_bytes{{{_SELECTED}}}", "{{instance}}"),),
        unit="bytes",
    ),
    Panel(
        title="CPU",
        description="Cores that the broker's process keeps busy.",
        queries=((f"rate(process_cpu_seconds_total{{{_SELECTED}}}[{_WINDOW}])", "{{instance}}"),),
        unit="short",
    ),
    Panel(
        title="What the memory is for",
        description="The cache, arriving requests, unread answers and what they use, and unacknowledged data.",
        queries=tuple(
            (f"sum by (instance) ({name}{{{_SELECTED}}})", "{{instance}} " + name.removeprefix("diskless_"))
            for name in (
                "diskless_cache_bytes",
                "diskless_arriving_bytes",
                "diskless_answer_bytes",
                "diskless_lent_bytes",
                "diskless_produce_inflight_bytes",
            )
        ),
        unit="bytes",
    ),
    Panel(
        title="Open files",
        description="As a share of what the process may open.",
        queries=((f"process_open_fds{{{_SELECTED}}} / process_max_fds{{{_SELECTED}}}", "{{instance}}"),),
        unit="percentunit",
    ),
)

DASHBOARDS: Sequence[Dashboard] = (
    Dashboard(
        name="cluster",
        title="Diskless / Cluster",
        prefixes=("",),
        panels=_OVERVIEW,
    ),
    Dashboard(
        name="clients",
        title="Diskless / Produce and fetch",
        prefixes=(
            "request",
            "forwarded",
            "throttle",
            "received",
            "sent",
            "frames",
            "connections",
            "arriv",
            "answer",
            "lent",
            "produce",
            "fetch",
            "commit",
        ),
    ),
    Dashboard(
        name="object-store",
        title="Diskless / Object store",
        prefixes=("wal", "store", "cache", "peer", "orphan", "clock"),
    ),
    Dashboard(name="coordinators", title="Diskless / Coordinators", prefixes=("coordinator",), panels=_LAGS),
    Dashboard(name="tiering", title="Diskless / Compaction and segments", prefixes=("remote", "compaction")),
    Dashboard(name="plugins", title="Diskless / Plugins", prefixes=("plugin",)),
    Dashboard(name="memory", title="Diskless / Memory and CPU", panels=_PROCESS),
)
"""All of them. The first one also has the metrics that no prefix of another one fits."""


def render(dashboard: Dashboard) -> str:
    """One of `DASHBOARDS` as Grafana imports it."""
    return json.dumps(_model(dashboard), indent=2) + "\n"


def metrics_of(dashboard: Dashboard) -> list[MetricDescription]:
    """The metrics whose panels are on it, in the order of their declaration."""
    return [metric for metric in Metrics().descriptions if _home_of(metric) is dashboard]


def _home_of(metric: MetricDescription) -> Dashboard:
    name = metric.name.removeprefix("diskless_")
    fitting = [
        (len(prefix), dashboard) for dashboard in DASHBOARDS for prefix in dashboard.prefixes if name.startswith(prefix)
    ]
    return max(fitting, key=lambda found: found[0])[1]


def _panel_of(metric: MetricDescription) -> Panel:
    legend = " ".join("{{" + label + "}}" for label in metric.labels)
    of_brokers = f"{{{{instance}}}} {legend}".strip()
    by = ", ".join(("instance", *metric.labels))
    stem = metric.name.removesuffix("_total")
    unit = "bytes" if "bytes" in stem else "s" if stem.endswith("_seconds") else "short"
    queries: Sequence[tuple[str, str]]
    match metric.type:
        case "counter":
            queries = ((_rate(metric.name, by), of_brokers),)
            unit = "Bps" if unit == "bytes" else "ops"
        case "histogram":
            queries = tuple(
                (_quantile(metric.name, quantile, metric.labels), f"p{quantile * 100:.0f} {legend}".strip())
                for quantile in (0.5, 0.99)
            )
        case _ if stem.endswith("_timestamp_seconds"):
            queries = ((f"time() - ({stem}{{{_SELECTED}}} > 0)", of_brokers),)
        case _:
            queries = ((f"max by ({by}) ({stem}{{{_SELECTED}}})", of_brokers),)
    title = stem.removeprefix("diskless_").replace("_", " ").capitalize()
    return Panel(title=title, description=metric.help, queries=queries, unit=unit)


def _model(dashboard: Dashboard) -> dict[str, Any]:
    panels = [*dashboard.panels, *map(_panel_of, metrics_of(dashboard))]
    return {
        "uid": f"diskless-{dashboard.name}",
        "title": dashboard.title,
        "description": "Generated by `make docs` of Diskless. Edit diskless_core/cli/dashboards.py instead.",
        "tags": ["diskless"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "panels": _laid_out(panels),
    }


def _variables() -> list[dict[str, Any]]:
    """Which Prometheus, which cluster by its job, and which of its brokers."""
    common = {"type": "query", "datasource": {"type": "prometheus", "uid": "${datasource}"}, "refresh": 2, "sort": 1}
    several = {"includeAll": True, "multi": True, "current": {"text": "All", "value": "$__all"}}
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Cluster",
            "query": {"query": "label_values(diskless_connections, job)", "refId": "job"},
            **common,
            **several,
        },
        {
            "name": "instance",
            "label": "Broker",
            "query": {"query": 'label_values(diskless_connections{job=~"$job"}, instance)', "refId": "instance"},
            **common,
            **several,
        },
    ]


def _laid_out(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Panels from left to right and from top to bottom."""
    x = y = 0
    models = []
    for number, panel in enumerate(panels, 1):
        if x + panel.width > COLUMNS:
            x, y = 0, y + _ROW_HEIGHT
        models.append(_panel_model(number, panel, x, y))
        x += panel.width
    return models


def _panel_model(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": _ROW_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": expr, "legendFormat": legend}
            for index, (expr, legend) in enumerate(panel.queries)
        ],
    }
