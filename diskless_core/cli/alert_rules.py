"""The alert rules of `deploy/`: what to watch of a broker and of a cluster, as Prometheus judges it.

Each rule says in one sentence what is wrong, and names the section of the documentation that says what to do.
Thresholds that are settings of a broker are those of its defaults.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from diskless_core.config.broker import BrokerConfig

JOB = "diskless"
"""The job by which Prometheus scrapes brokers, as far as a rule has to name it."""

_CLUSTER = "cluster, namespace, job"
"""Labels that tell clusters apart where one Prometheus watches several. Those that are not there do no harm."""

_OPERATIONS = "operations.md#what-to-watch"
_PLUGINS = "operate-plugins.md#when-one-misbehaves"
_PLUGIN = "{{ $labels.noun }}.{{ $labels.name }}"
_COORDINATOR = "coordinator.md#what-to-watch"
_BROKERS = "cluster.md#what-to-watch"
_SLOW_S = 2.5
_DEFAULTS = BrokerConfig()


class Severity(StrEnum):
    """Who has to know, and when."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One rule.

    Attributes:
        name: of the alert, without the product's.
        expr: PromQL that gives a series for each thing that is wrong.
        wait: how long it has to be wrong, as Prometheus writes durations.
        summary: what is wrong, with labels of the series as `{{ $labels.instance }}`.
        page: where the documentation says what it means, below docs/.
    """

    name: str
    expr: str
    wait: str
    severity: Severity
    summary: str
    page: str


def _p99(histogram: str, *labels: str) -> str:
    by = ", ".join((_CLUSTER, "instance", *labels, "le"))
    return f"histogram_quantile(0.99, sum by ({by}) (rate({histogram}_bucket[5m])))"


def _moved(counter: str, window: str = "15m") -> str:
    return f"increase({counter}[{window}]) > 0"


def _share(part: str, whole: str) -> str:
    by = f"sum by ({_CLUSTER}, instance)"
    return f"{by} (rate({part}[10m])) / {by} (rate({whole}[10m]))"


_BROKER = "{{ $labels.instance }}"
_SHARD = "{{ $labels.shard }}"

_OF_THE_CLUSTER = (
    Alert(
        name="BrokerDown",
        expr=f'up{{job="{JOB}"}} == 0',
        wait="2m",
        severity=Severity.WARNING,
        summary=f"The broker at {_BROKER} does not answer Prometheus.",
        page=_BROKERS,
    ),
    Alert(
        name="BrokersFenced",
        expr=f"max by ({_CLUSTER}) (diskless_fenced_brokers) > 0",
        wait="10m",
        severity=Severity.WARNING,
        summary="{{ $value }} registered brokers are fenced: clients are not sent to them. `diskless cluster status` "
        "says why. One that is gone for good wants `diskless cluster unregister`.",
        page=_BROKERS,
    ),
    Alert(
        name="BrokerNotLive",
        expr=f"min by ({_CLUSTER}) (diskless_active_brokers) < count by ({_CLUSTER}) (diskless_active_brokers)",
        wait="5m",
        severity=Severity.WARNING,
        summary="A broker knows of only {{ $value }} live ones, and more are running: one has not joined or follows "
        "an old log.",
        page="cluster.md#when-a-broker-does-not-join",
    ),
    Alert(
        name="PeerSendsWrongBytes",
        expr=_moved('diskless_peer_reads_total{outcome="wrong"}', "1h"),
        wait="0m",
        severity=Severity.CRITICAL,
        summary=f"The broker at {_BROKER} got other bytes from a broker of its rack than an object has: the memory of "
        "that one, which the log names, is damaged.",
        page="cluster.md#a-cache-that-a-rack-shares",
    ),
    Alert(
        name="PeersDoNotAnswer",
        expr=_share('diskless_peer_reads_total{outcome!="answered"}', "diskless_peer_reads_total") + " > 0.5",
        wait="15m",
        severity=Severity.WARNING,
        summary=f"Most reads for which the broker at {_BROKER} should ask another one of its rack go to the object "
        "store: one of the rack is slow, or cannot be reached.",
        page="cluster.md#a-cache-that-a-rack-shares",
    ),
)

_OF_CLIENTS = (
    Alert(
        name="RequestsFail",
        expr=_moved("diskless_request_errors_total"),
        wait="0m",
        severity=Severity.WARNING,
        summary=f"Requests of {{{{ $labels.api }}}} fail at {_BROKER} with an unexpected error: a defect, whose "
        "traceback is in the broker's log.",
        page=_OPERATIONS,
    ),
    Alert(
        name="ProduceMemoryFull",
        expr=f"diskless_produce_inflight_bytes > {0.8 * _DEFAULTS.diskless_append_inflight_max_bytes:.0f}",
        wait="2m",
        severity=Severity.WARNING,
        summary=f"The broker at {_BROKER} has {{{{ $value | humanize1024 }}}}B that are not acknowledged yet, near "
        "diskless.append.inflight.max.bytes: the object store or the coordinator log is too slow.",
        page=_OPERATIONS,
    ),
    Alert(
        name="CommitsSlow",
        expr=f"{_p99('diskless_commit_seconds')} > {_SLOW_S}",
        wait="10m",
        severity=Severity.WARNING,
        summary=f"One commit in a hundred takes the broker at {_BROKER} longer than {{{{ $value | humanizeDuration }}}}"
        ": producers wait for the coordinator log.",
        page=_OPERATIONS,
    ),
    Alert(
        name="LogLinesLost",
        expr=f"sum by ({_CLUSTER}, instance) (increase(diskless_log_lines_lost_total[15m])) > 0",
        wait="5m",
        severity=Severity.WARNING,
        summary=f"Lines of the log of the broker at {_BROKER} are lost: nothing reads its standard error, or its disk "
        "is full. Its health says which.",
        page="operations.md#health",
    ),
    Alert(
        name="ConnectionsRefused",
        expr=_moved("diskless_connections_refused_total"),
        wait="5m",
        severity=Severity.WARNING,
        summary=f"The broker at {_BROKER} closes connections of clients: max.connections or the limit of open files "
        "is reached.",
        page="operations.md#memory-and-files",
    ),
    Alert(
        name="OpenFilesRunOut",
        expr="process_open_fds / process_max_fds > 0.8 and on (instance, job) diskless_connections",
        wait="10m",
        severity=Severity.WARNING,
        summary=f"The broker at {_BROKER} has opened {{{{ $value | humanizePercentage }}}} of the files that it may.",
        page="operations.md#memory-and-files",
    ),
    Alert(
        name="FramesRefused",
        expr="rate(diskless_frames_refused_total[10m]) > 0.1",
        wait="15m",
        severity=Severity.INFO,
        summary=f"Something that does not speak Kafka talks to the broker at {_BROKER}.",
        page=_OPERATIONS,
    ),
)

_OF_STORES = (
    Alert(
        name="UploadsFail",
        expr=_moved("diskless_wal_upload_failures_total"),
        wait="0m",
        severity=Severity.CRITICAL,
        summary=f"The broker at {_BROKER} has given up writing objects: producers got errors. Its health says what "
        "the object store answers.",
        page="operations.md#health",
    ),
    Alert(
        name="UploadsRetried",
        expr=_share("diskless_wal_upload_retries_total", "diskless_wal_objects_uploaded_total") + " > 0.1",
        wait="10m",
        severity=Severity.WARNING,
        summary=f"Of the writes to the object store by {_BROKER}, {{{{ $value | humanizePercentage }}}} are tried "
        "again.",
        page=_OPERATIONS,
    ),
    Alert(
        name="UploadsSlow",
        expr=f"{_p99('diskless_wal_upload_seconds')} > {_SLOW_S}",
        wait="10m",
        severity=Severity.WARNING,
        summary=f"One write in a hundred to the object store takes the broker at {_BROKER} longer than "
        "{{ $value | humanizeDuration }}: producers wait for it.",
        page=_OPERATIONS,
    ),
    Alert(
        name="ReadsFail",
        expr=_moved("diskless_store_read_failures_total"),
        wait="5m",
        severity=Severity.WARNING,
        summary=f"Reads of the object store fail at {_BROKER}: consumers wait.",
        page="operations.md#health",
    ),
    Alert(
        name="ReadsSlow",
        expr=f"{_p99('diskless_store_read_seconds')} > {_SLOW_S}",
        wait="10m",
        severity=Severity.WARNING,
        summary=f"One read in a hundred of the object store takes the broker at {_BROKER} longer than "
        "{{ $value | humanizeDuration }}: consumers behind the cache wait for it.",
        page=_OPERATIONS,
    ),
    Alert(
        name="DeletionsFail",
        expr=_moved("diskless_wal_delete_failures_total", "1h"),
        wait="1h",
        severity=Severity.WARNING,
        summary=f"The object store refuses deletions by {_BROKER}: what nobody needs is paid for.",
        page="operations.md#retention-and-disk-space",
    ),
    Alert(
        name="OrphanScansFail",
        expr="increase(diskless_orphan_scan_failures_total[2d]) > 1",
        wait="0m",
        severity=Severity.WARNING,
        summary=f"Scans for objects that nobody committed fail at {_BROKER}; its log says what keeps them from their "
        "end.",
        page="operations.md#retention-and-disk-space",
    ),
    Alert(
        name="PluginRaisesForeign",
        expr='increase(diskless_plugin_calls_total{result="foreign"}[15m]) > 0',
        wait="5m",
        severity=Severity.WARNING,
        summary=f"The plugin {_PLUGIN} at {_BROKER} raises exceptions that its interface does not know: a defect of "
        "the plugin. GET /plugins/selected has the last one.",
        page=_PLUGINS,
    ),
    Alert(
        name="PluginBlocksLoop",
        expr="rate(diskless_plugin_loop_stall_seconds_total[10m]) > 0.01",
        wait="5m",
        severity=Severity.WARNING,
        summary=f"The plugin {_PLUGIN} blocks the event loop of {_BROKER} for {{{{ $value | humanizePercentage }}}} of "
        "the time: no client is answered meanwhile.",
        page=_PLUGINS,
    ),
    Alert(
        name="PluginSlow",
        expr="increase(diskless_plugin_slow_calls_total[15m]) > 0",
        wait="10m",
        severity=Severity.INFO,
        summary=f"Calls of the plugin {_PLUGIN} at {_BROKER} take longer than is expected of it.",
        page=_PLUGINS,
    ),
    Alert(
        name="ClockOff",
        expr="diskless_clock_behind_seconds > 60 or diskless_clock_ahead_seconds > 60",
        wait="5m",
        severity=Severity.WARNING,
        summary=f"The clock of {_BROKER} is {{{{ $value | humanizeDuration }}}} off a coordinator's.",
        page="operations.md#clocks",
    ),
    Alert(
        name="ClocksDisagree",
        expr=f"max by ({_CLUSTER}) (diskless_clock_disagrees) > 0",
        wait="5m",
        severity=Severity.WARNING,
        summary="The clock of a live broker is off by more than ten seconds. Until it is right, records, objects and "
        "offsets are not removed when their time is over. The brokers' logs say whose clock it is.",
        page="operations.md#clocks",
    ),
    Alert(
        name="SegmentsNotMade",
        expr="min_over_time(diskless_remote_copy_lag_segments[1h]) > 0",
        wait="1h",
        severity=Severity.WARNING,
        summary=f"{{{{ $value }}}} full segments wait at {_BROKER}: compaction does not keep up, or fails.",
        page=_OPERATIONS,
    ),
    Alert(
        name="SegmentCopiesFail",
        expr=_moved("diskless_remote_copy_errors_total"),
        wait="15m",
        severity=Severity.WARNING,
        summary=f"Segments cannot be copied to remote storage by {_BROKER}; its log says why.",
        page=_OPERATIONS,
    ),
    Alert(
        name="SegmentReadsFail",
        expr="increase(diskless_remote_fetch_errors_total[15m]) + increase(diskless_remote_fetch_timeouts_total[15m])"
        " > 0",
        wait="5m",
        severity=Severity.WARNING,
        summary=f"Consumers of old records wait at {_BROKER}: remote storage fails or is slow.",
        page=_OPERATIONS,
    ),
    Alert(
        name="SegmentsNotDeleted",
        expr="min_over_time(diskless_remote_delete_lag_segments[1h]) > 0",
        wait="1h",
        severity=Severity.WARNING,
        summary=f"{{{{ $value }}}} segments that should be gone cannot be deleted by {_BROKER}.",
        page=_OPERATIONS,
    ),
)

_OF_COORDINATORS = (
    Alert(
        name="CoordinatorWithoutLeader",
        expr=f"sum by ({_CLUSTER}, shard) (diskless_coordinator_leading) == 0",
        wait="1m",
        severity=Severity.CRITICAL,
        summary=f"No broker leads the coordinator {_SHARD}: what it decides waits.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorHasTwoLeaders",
        expr=f"sum by ({_CLUSTER}, shard) (diskless_coordinator_leading) > 1",
        wait="2m",
        severity=Severity.WARNING,
        summary=f"{{{{ $value }}}} brokers take themselves for the leader of {_SHARD}; the log heeds one of them. The "
        "others do not read it.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorCommandsPileUp",
        expr="diskless_coordinator_pending_commands > 100 and deriv(diskless_coordinator_pending_commands[10m]) > 0",
        wait="10m",
        severity=Severity.CRITICAL,
        summary=f"{{{{ $value }}}} commands of {_SHARD} wait at {_BROKER}, and ever more: its log does not commit.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorCopyLags",
        expr="diskless_coordinator_log_end_offset - diskless_coordinator_applied_offset > 10000",
        wait="10m",
        severity=Severity.WARNING,
        summary=f"The copy of {_SHARD} at {_BROKER} is {{{{ $value }}}} offsets behind the log.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorLogReadInstead",
        expr="(rate(diskless_coordinator_log_entries_total[10m]) > rate(diskless_coordinator_streamed_entries_total"
        "[10m])) and on (instance, job, shard) (diskless_coordinator_leading == 0)",
        wait="30m",
        severity=Severity.WARNING,
        summary=f"The broker at {_BROKER} reads the log of {_SHARD} itself: it does not reach the leader at the "
        "inter-broker listener. Its log says why.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorCopiesDiffer",
        expr=_moved("diskless_coordinator_differences_total", "1h"),
        wait="0m",
        severity=Severity.WARNING,
        summary=f"A leader of {_SHARD} sent {_BROKER} entries that did not follow from what it had applied. The log "
        "has decided; an error was logged.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorHeldBack",
        expr="diskless_coordinator_held_back == 1",
        wait="1m",
        severity=Severity.CRITICAL,
        summary=f"The store of {_SHARD} at {_BROKER} lacks so much that nothing new is accepted.",
        page="coordinator.md#a-store-that-falls-behind",
    ),
    Alert(
        name="CoordinatorStoreFails",
        expr=_moved("diskless_coordinator_flush_failures_total"),
        wait="2m",
        severity=Severity.WARNING,
        summary=f"The store of {_SHARD} at {_BROKER} refuses writes: look at the disk.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorStoreLags",
        expr="diskless_coordinator_applied_offset - diskless_coordinator_stored_offset > 100000",
        wait="15m",
        severity=Severity.WARNING,
        summary=f"The store of {_SHARD} at {_BROKER} lacks {{{{ $value }}}} offsets: its disk is too slow.",
        page="coordinator.md#a-store-that-falls-behind",
    ),
    Alert(
        name="CoordinatorSnapshotOld",
        expr=f"time() - (diskless_coordinator_snapshot_timestamp_seconds > 0) > "
        f"{3 * _DEFAULTS.metadata_log_max_snapshot_interval_ms // 1000} and on (instance, job, shard) "
        "(diskless_coordinator_leading == 1) and on (instance, job, shard) "
        "(rate(diskless_coordinator_commits_total[1h]) > 0)",
        wait="15m",
        severity=Severity.WARNING,
        summary=f"The last snapshot of {_SHARD} is {{{{ $value | humanizeDuration }}}} old: the log is not pruned.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorSnapshotsFail",
        expr=_moved("diskless_coordinator_snapshot_failures_total", "1h"),
        wait="15m",
        severity=Severity.WARNING,
        summary=f"Snapshots of {_SHARD} fail at {_BROKER}: look at the object store, and the permissions below the "
        "prefix of snapshots.",
        page=_COORDINATOR,
    ),
    Alert(
        name="CoordinatorProducersMany",
        expr="diskless_coordinator_producers > 1000000",
        wait="1h",
        severity=Severity.INFO,
        summary=f"{_SHARD} remembers {{{{ $value }}}} producers: some client begins with a new producer id time and "
        "again.",
        page=_COORDINATOR,
    ),
    Alert(
        name="ObjectsNotDeleted",
        expr='diskless_wal_objects{stage=~"to_delete|to_hand_over|waiting"} > 1000 and '
        'deriv(diskless_wal_objects{stage=~"to_delete|to_hand_over|waiting"}[6h]) > 0',
        wait="6h",
        severity=Severity.WARNING,
        summary=f"{{{{ $value }}}} objects of {_SHARD} are {{{{ $labels.stage }}}}, and ever more: the object store "
        "refuses to delete, or a coordinator cannot be reached.",
        page=_COORDINATOR,
    ),
)

GROUPS: dict[str, Sequence[Alert]] = {
    "diskless-cluster": _OF_THE_CLUSTER,
    "diskless-clients": _OF_CLIENTS,
    "diskless-stores": _OF_STORES,
    "diskless-coordinators": _OF_COORDINATORS,
}
"""All rules, by the names of their groups."""

_HEAD = """\
# Generated by `make docs`. Edit diskless_core/cli/alert_rules.py instead.
groups:
"""


def render() -> str:
    """The rules as Prometheus reads them. Each string is written as JSON, which YAML takes as it is."""
    return _HEAD + "".join(
        f"  - name: {group}\n    rules:\n" + "".join(map(_rule, alerts)) for group, alerts in GROUPS.items()
    )


def _rule(alert: Alert) -> str:
    return (
        f"      - alert: Diskless{alert.name}\n"
        f"        expr: {json.dumps(alert.expr)}\n"
        f"        for: {alert.wait}\n"
        f"        labels:\n"
        f"          severity: {alert.severity}\n"
        f"        annotations:\n"
        f"          summary: {json.dumps(alert.summary)}\n"
        f"          runbook: {json.dumps(alert.page)}\n"
    )
