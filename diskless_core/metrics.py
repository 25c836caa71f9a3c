"""Every figure that a broker keeps of itself, in one private Prometheus registry.

Labels are bounded by the broker's own vocabulary (APIs, error codes, shards), never by what clients make up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from diskless_core.plugin_host.health import HealthBook
from diskless_core.plugin_host.health_metrics import DECLARATIONS, HealthCollector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class WatchedShard(Protocol):
    """What the registry asks a coordinator shard for whenever it is scraped."""

    @property
    def leading(self) -> bool: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def pending_commands(self) -> int: ...

    @property
    def stored_offset(self) -> int: ...

    @property
    def unflushed_rows(self) -> int: ...

    @property
    def held_back(self) -> bool: ...

    @property
    def bytes_since_snapshot(self) -> int: ...

    @property
    def snapshot_bytes(self) -> int: ...

    @property
    def snapshot_taken_at(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDescription:
    """One metric as the reference lists it. Of a histogram, `name` is the stem of its three series."""

    area: str
    name: str
    type: str
    labels: Sequence[str]
    help: str


class WatchedClocks(Protocol):
    """What is exported of the clocks of live brokers."""

    @property
    def difference_ms(self) -> int: ...

    @property
    def is_held(self) -> bool: ...


class Metrics:
    """The broker's metrics, one attribute each; counters take `inc`, gauges `set`, histograms `observe` or `time`.

    Each instance has a registry of its own, so that several brokers can live in one process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.descriptions: list[MetricDescription] = []
        ProcessCollector(registry=self.registry)
        for area, declare in (
            ("Connections and requests", self._declare_network),
            ("Produce", self._declare_produce),
            ("Fetch", self._declare_fetch),
            ("Reads of remote storage", self._declare_remote_fetch),
            ("WAL objects and orphans", self._declare_files),
            ("The object store", self._declare_object_store),
            ("Compaction and segments", self._declare_segment_copies),
            ("Brokers of the cluster", self._declare_brokers),
            ("Coordinators", self._declare_coordinator),
            ("Plugins", self._declare_plugins),
            ("The broker's log", self._declare_log),
        ):
            self._area = area
            declare()

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format, whose media type is `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def watch_shard(self, name: str, shard: WatchedShard) -> None:
        """Export the state of a coordinator shard from now on, read afresh by each scrape."""
        self.coordinator_leading.labels(name).set_function(lambda: float(shard.leading))
        self.coordinator_applied_offset.labels(name).set_function(lambda: float(shard.next_offset))
        self.coordinator_pending_commands.labels(name).set_function(lambda: float(shard.pending_commands))
        self.coordinator_stored_offset.labels(name).set_function(lambda: float(shard.stored_offset))
        self.coordinator_unflushed_rows.labels(name).set_function(lambda: float(shard.unflushed_rows))
        self.coordinator_held_back.labels(name).set_function(lambda: float(shard.held_back))
        self.coordinator_log_bytes_since_snapshot.labels(name).set_function(lambda: float(shard.bytes_since_snapshot))
        self.coordinator_snapshot_bytes.labels(name).set_function(lambda: float(shard.snapshot_bytes))
        self.coordinator_snapshot_timestamp_seconds.labels(name).set_function(lambda: shard.snapshot_taken_at / 1000)

    def watch_brokers(self, count: Callable[..., int]) -> None:
        """Export how many brokers are live and fenced, counted by each scrape by `count(live=…)`."""
        self.active_brokers.set_function(lambda: float(count(live=True)))
        self.fenced_brokers.set_function(lambda: float(count(live=False)))

    def watch_clocks(self, clocks: WatchedClocks) -> None:
        """Export how the clocks of live brokers compare with this one's, read afresh by each scrape."""
        self.clock_difference_seconds.set_function(lambda: clocks.difference_ms / 1000)
        self.clock_disagrees.set_function(lambda: float(clocks.is_held))

    def watch_producers(self, name: str, count: Callable[[], int]) -> None:
        """Export how many producers' windows a diskless shard holds, counted by each scrape."""
        self.coordinator_producers.labels(name).set_function(lambda: float(count()))

    def _declare_network(self) -> None:
        self.connections = self._gauge("connections", "Client connections that are open.")
        self.connections_accepted = self._counter("connections_accepted", "Client connections accepted.")
        self.connections_refused = self._counter(
            "connections_refused",
            "Client connections closed at once because max.connections or the limit of open files was reached.",
        )
        self.frames_refused = self._counter(
            "frames_refused", "Requests too large or malformed; each closed its connection."
        )
        self.arriving_bytes = self._gauge(
            "arriving_bytes", "Memory taken by large requests that have not arrived whole yet."
        )
        self.arrivals_given_up = self._counter(
            "arrivals_given_up", "Connections closed because their request came too slowly while memory was short."
        )
        self.answer_bytes = self._gauge(
            "answer_bytes", "Memory taken by answers to consumers that are being made, or are not read yet."
        )
        self.lent_bytes = self._gauge(
            "lent_bytes", "Memory of the buffers that unread answers use, in the cache or no longer in it."
        )
        self.answers_given_up = self._counter(
            "answers_given_up", "Connections closed because their clients read no answers while memory was short."
        )
        self.received_bytes = self._counter("received_bytes", "Bytes of requests received.")
        self.sent_bytes = self._counter("sent_bytes", "Bytes of responses sent.")
        self.client_bytes = self._counter(
            "client_bytes",
            "Bytes to and from clients. kind is produced for Produce requests, consumed for answers to Fetch, and "
            "other for all else, both ways. racks says whether the client is in this broker's rack: same, other or "
            "unknown.",
            "kind",
            "racks",
        )
        self.request_errors = self._counter(
            "request_errors", "Requests whose handler failed with an unexpected error.", "api"
        )
        self.forwarded_requests = self._counter(
            "forwarded_requests", "Requests of clients that were sent to the controller.", "api"
        )
        self.request_seconds = self._histogram(
            "request_seconds", "Time from a request's last byte to its answer, waits included.", "api"
        )
        self.throttle_seconds = self._histogram(
            "throttle_seconds", "Time that a client was told to wait because it was over its quota.", "api"
        )

    def _declare_produce(self) -> None:
        self.produce_batches = self._counter("produce_batches", "Record batches acknowledged.")
        self.produce_records = self._counter("produce_records", "Records acknowledged.")
        self.produce_bytes = self._counter("produce_bytes", "Bytes of the batches acknowledged, compressed as sent.")
        self.produce_rejections = self._counter(
            "produce_rejections", "Batches refused, by Kafka's name of the error.", "error"
        )
        self.produce_recompressions = self._counter(
            "produce_recompressions", "Batches compressed again, because their topic wants another compression.type."
        )
        self.produce_inflight_bytes = self._gauge(
            "produce_inflight_bytes", "Bytes of produce requests accepted and not yet answered."
        )
        self.produce_wait_seconds = self._histogram(
            "produce_wait_seconds",
            "Time that batches wait on their way. gathering: from an object's first batch until it is sealed. slot: "
            "until one of diskless.append.upload.parallelism uploads is free. turn: from the upload's end until "
            "earlier batches of the partitions are committed. diskless_wal_upload_seconds and diskless_commit_seconds "
            "have the rest of the way.",
            "stage",
        )
        self.wal_objects_uploaded = self._counter("wal_objects_uploaded", "WAL objects written to the object store.")
        self.wal_bytes_uploaded = self._counter("wal_bytes_uploaded", "Bytes of the WAL objects written.")
        self.wal_upload_seconds = self._histogram(
            "wal_upload_seconds", "Time to write one WAL object, its retries included."
        )
        self.wal_upload_retries = self._counter("wal_upload_retries", "Writes of a WAL object that were tried again.")
        self.wal_second_uploads = self._counter(
            "wal_second_uploads", "Writes of a WAL object that were sent again because they had no answer for long."
        )
        self.wal_upload_failures = self._counter("wal_upload_failures", "WAL objects whose writing was given up.")
        self.clock_behind_seconds = self._gauge(
            "clock_behind_seconds",
            "How far the clock was behind a coordinator's that refused an object as too old; 0 unless that happened.",
        )
        self.clock_ahead_seconds = self._gauge(
            "clock_ahead_seconds", "How far, at least, the clock was ahead of a coordinator's at the last commit."
        )
        self.clock_difference_seconds = self._gauge(
            "clock_difference_seconds",
            "How far the clock of some live broker was from this broker's at the last heartbeat; 0 without others.",
        )
        self.clock_disagrees = self._gauge(
            "clock_disagrees",
            "1 while the clock of a live broker is off, so that expiry and deletion by time wait, else 0.",
        )
        self.commit_seconds = self._histogram(
            "commit_seconds", "Time for a coordinator shard to commit one WAL object's batches."
        )

    def _declare_fetch(self) -> None:
        self.fetch_bytes = self._counter(
            "fetch_bytes",
            "Bytes of batches sent to consumers, by where they came from: cache, peer (another broker's cache), store "
            "or segments.",
            "source",
        )
        self.fetch_waiting = self._gauge("fetch_waiting", "Fetch requests that wait for more data.")
        self.store_reads = self._counter("store_reads", "Ranged reads of the object store.")
        self.store_bytes_read = self._counter("store_bytes_read", "Bytes read from the object store.")
        self.store_read_seconds = self._histogram("store_read_seconds", "Time of one ranged read of the object store.")
        self.store_read_failures = self._counter(
            "store_read_failures",
            "Reads of the object store that failed, or that were damaged and had to be done again.",
        )
        self.cache_hits = self._counter("cache_hits", "Lookups that found a WAL object in the cache.")
        self.cache_misses = self._counter("cache_misses", "Lookups that did not.")
        self.cache_bytes = self._gauge("cache_bytes", "Bytes of WAL objects held in the cache.")
        self.peer_reads = self._counter(
            "peer_reads",
            "Reads for which another broker's cache was to be asked, by outcome. answered: it sent the bytes. refused: "
            "it was too busy, shares no cache, or could not read the object. late: the object store was asked too. "
            "failed: no answer. wrong: other bytes than the object has. skipped: it is not asked for a while. crowded: "
            "too many requests to it were under way.",
            "outcome",
        )
        self.peer_bytes_read = self._counter("peer_bytes_read", "Bytes that other brokers' caches sent to this one.")
        self.peer_read_seconds = self._histogram("peer_read_seconds", "Time of one such read that was answered.")
        self.peer_requests = self._counter(
            "peer_requests",
            "Reads of this broker's cache by other brokers, by outcome: memory, store or refused.",
            "outcome",
        )
        self.peer_bytes_sent = self._counter("peer_bytes_sent", "Bytes that this broker's cache sent to other brokers.")

    def _declare_remote_fetch(self) -> None:
        self.remote_fetch_requests = self._counter(
            "remote_fetch_requests",
            "Reads of segments and indexes from remote storage for consumers. Kafka's RemoteFetchRequestsPerSec.",
        )
        self.remote_fetch_bytes = self._counter(
            "remote_fetch_bytes", "Bytes read from remote storage for consumers. Kafka's RemoteFetchBytesPerSec."
        )
        self.remote_fetch_errors = self._counter(
            "remote_fetch_errors",
            "Reads of remote storage that failed, segments that are gone not counted. Kafka's RemoteFetchErrorsPerSec.",
        )
        self.remote_fetch_seconds = self._histogram("remote_fetch_seconds", "Time of one read of remote storage.")
        self.remote_fetch_refusals = self._counter(
            "remote_fetch_refusals", "Reads of remote storage put off because remote.log.reader.max.pending.tasks wait."
        )
        self.remote_fetch_timeouts = self._counter(
            "remote_fetch_timeouts", "Partitions of Fetch requests answered empty after remote.fetch.max.wait.ms."
        )
        self.remote_reader_queue = self._gauge(
            "remote_reader_queue",
            "Reads that wait for one of remote.log.reader.threads. Kafka's RemoteLogReaderTaskQueueSize.",
        )

    def _declare_files(self) -> None:
        self.wal_objects_deleted = self._counter(
            "wal_objects_deleted", "WAL objects deleted because nothing in them was live any more."
        )
        self.orphans_found = self._gauge("orphans_found", "Objects that nobody committed, at the last scan for them.")
        self.orphans_deleted = self._counter("orphans_deleted", "Of those, objects that were deleted.")
        self.orphan_scan_failures = self._counter(
            "orphan_scan_failures", "Scans for objects that nobody committed that failed and were put off."
        )
        self.wal_delete_failures = self._counter(
            "wal_delete_failures", "Rounds of deleting WAL objects that failed and were put off."
        )

    def _declare_object_store(self) -> None:
        self.object_store_requests = self._counter(
            "object_store_requests",
            "Requests to wal_object_store. use is log for the coordinator log's own, and records for all else: WAL "
            "objects and snapshots. operation is put, get, list or delete.",
            "use",
            "operation",
        )
        self.object_store_bytes = self._counter(
            "object_store_bytes", "Bytes written (put) and read (get) by these requests.", "use", "operation"
        )
        self.object_store_bills_requests = self._gauge(
            "object_store_bills_requests",
            "1 where the provider of wal_object_store bills these requests, as for a bucket; 0 where nobody does, as "
            "for a folder.",
        )

    def _declare_segment_copies(self) -> None:
        self.remote_copy_bytes = self._counter(
            "remote_copy_bytes", "Bytes of segments copied to remote storage. Kafka's RemoteCopyBytesPerSec."
        )
        self.remote_copy_requests = self._counter(
            "remote_copy_requests", "Copies of a segment that were begun. Kafka's RemoteCopyRequestsPerSec."
        )
        self.remote_copy_errors = self._counter(
            "remote_copy_errors", "Copies of a segment that failed. Kafka's RemoteCopyErrorsPerSec."
        )
        self.remote_copy_lag_bytes = self._gauge(
            "remote_copy_lag_bytes",
            "Bytes of full segments that are still to be copied, at the last look. Kafka's RemoteCopyLagBytes.",
        )
        self.remote_copy_lag_segments = self._gauge(
            "remote_copy_lag_segments",
            "Full segments that are still to be copied, at the last look. Kafka's RemoteCopyLagSegments.",
        )
        self.remote_delete_requests = self._counter(
            "remote_delete_requests",
            "Deletions of a segment from remote storage. Kafka's RemoteDeleteRequestsPerSec.",
        )
        self.remote_delete_errors = self._counter(
            "remote_delete_errors",
            "Of those, deletions that failed and were put off. Kafka's RemoteDeleteErrorsPerSec.",
        )
        self.remote_delete_lag_bytes = self._gauge(
            "remote_delete_lag_bytes", "Bytes of segments that wait for their deletion. Kafka's RemoteDeleteLagBytes."
        )
        self.remote_delete_lag_segments = self._gauge(
            "remote_delete_lag_segments", "Segments that wait for their deletion. Kafka's RemoteDeleteLagSegments."
        )
        self.compaction_jobs = self._counter(
            "compaction_jobs", "Compactions that had anything to do, by outcome.", "outcome"
        )
        self.compaction_store_reads = self._counter(
            "compaction_store_reads", "Ranged reads of WAL objects by compactions."
        )
        self.compaction_store_bytes_read = self._counter(
            "compaction_store_bytes_read", "Bytes of WAL objects read by compactions."
        )

    def _declare_brokers(self) -> None:
        self.broker_info = self._gauge(
            "broker_info",
            "1, with the broker's node id, its broker.rack (empty without one) and the id of its cluster.",
            "node_id",
            "rack",
            "cluster_id",
        )
        self.inter_broker_bytes = self._counter(
            "inter_broker_bytes",
            "Bytes of requests that this broker sent to others, and of the answers that it received. The sum over all "
            "brokers has each byte once. purpose is commits (of WAL objects, to their coordinators), entries (of "
            "coordinators that it follows), forwarded (requests of clients, to the controller), objects (reads of "
            "another broker's cache), questions (where batches are, of coordinators that it does not follow), "
            "membership (registrations and heartbeats) or other. racks says whether the other broker is in this one's "
            "rack: same, other or unknown.",
            "purpose",
            "direction",
            "racks",
        )
        self.active_brokers = self._gauge(
            "active_brokers",
            "Registered brokers that are not fenced, as this one knows. Kafka's ActiveBrokerCount.",
        )
        self.fenced_brokers = self._gauge(
            "fenced_brokers", "Registered brokers that are fenced, as this one knows. Kafka's FencedBrokerCount."
        )
        self.gateway_placement_failures = self._counter(
            "gateway_placement_failures",
            "Times that the plugin of gateway_placement failed or broke its contract. Until brokers or leaders change, "
            "clients are sent to any broker of their rack.",
        )

    def _declare_coordinator(self) -> None:
        self.coordinator_leading = self._gauge(
            "coordinator_leading", "1 where this broker leads the coordinator shard, else 0.", "shard"
        )
        self.coordinator_applied_offset = self._gauge(
            "coordinator_applied_offset", "Offset in the shard's log below which all is applied.", "shard"
        )
        self.coordinator_pending_commands = self._gauge(
            "coordinator_pending_commands", "Commands on their way through the shard's log.", "shard"
        )
        self.coordinator_command_seconds = self._histogram(
            "coordinator_command_seconds",
            "Time from a command's submission to its answer: check, log, read back. Those that succeeded.",
            "shard",
        )
        self.coordinator_log_start_offset = self._gauge(
            "coordinator_log_start_offset", "First offset of the shard's log that is kept.", "shard"
        )
        self.coordinator_log_end_offset = self._gauge(
            "coordinator_log_end_offset",
            "First offset of the shard's log that is not committed, as last looked up.",
            "shard",
        )
        self.coordinator_log_entries = self._counter(
            "coordinator_log_entries", "Entries of the shard that this broker read from the log itself.", "shard"
        )
        self.coordinator_streamed_entries = self._counter(
            "coordinator_streamed_entries", "Entries of the shard that its leader sent, instead of the log.", "shard"
        )
        self.coordinator_differences = self._counter(
            "coordinator_differences",
            "How often a leader's entries did not follow from what was applied here; the log decided then.",
            "shard",
        )
        self.coordinator_disputed_claims = self._counter(
            "coordinator_disputed_claims",
            "Claims of brokers that had read something else in the log than this one; the log agreed with this one.",
            "shard",
        )
        self.coordinator_foreign_batches = self._counter(
            "coordinator_foreign_batches",
            "Batches in the log that no coordinator wrote. All brokers ignore them.",
            "shard",
        )
        self._declare_commits()
        self._declare_store()
        self._declare_snapshots()

    def _declare_commits(self) -> None:
        self.coordinator_commits = self._counter(
            "coordinator_commits", "CommitFiles that this broker applied, as leader or follower.", "shard"
        )
        self.coordinator_committed_batches = self._counter(
            "coordinator_committed_batches", "Batches of these commits, refused ones and duplicates included.", "shard"
        )
        self.coordinator_committed_runs = self._counter(
            "coordinator_committed_runs", "Rows that these batches became, adjacent ones sharing a row.", "shard"
        )
        self.coordinator_producers = self._gauge(
            "coordinator_producers", "Producers remembered by partition, to recognise their retries.", "shard"
        )
        self.wal_objects = self._gauge(
            "wal_objects",
            "WAL objects that the shard knows by stage of life, counted every five minutes at least.",
            "shard",
            "stage",
        )

    def _declare_store(self) -> None:
        self.coordinator_stored_offset = self._gauge(
            "coordinator_stored_offset", "Offset in the shard's log below which all is in its store.", "shard"
        )
        self.coordinator_unflushed_rows = self._gauge(
            "coordinator_unflushed_rows", "Rows applied in memory that the store has not got yet.", "shard"
        )
        self.coordinator_held_back = self._gauge(
            "coordinator_held_back",
            "1 while the store lacks so much that the leader refuses commands, or a follower does not read the log.",
            "shard",
        )
        self.coordinator_refused_commands = self._counter(
            "coordinator_refused_commands", "Commands refused because the store lacks too much.", "shard"
        )
        self.coordinator_flush_seconds = self._histogram(
            "coordinator_flush_seconds", "Time to give the store what it lacks.", "shard"
        )
        self.coordinator_flushed_rows = self._counter("coordinator_flushed_rows", "Rows given to the store.", "shard")
        self.coordinator_flush_failures = self._counter(
            "coordinator_flush_failures", "Writes that the store refused; each is tried again.", "shard"
        )

    def _declare_snapshots(self) -> None:
        self.coordinator_log_bytes_since_snapshot = self._gauge(
            "coordinator_log_bytes_since_snapshot",
            "Bytes of the log applied since the last snapshot, or since the start, that this process knows of.",
            "shard",
        )
        self.coordinator_snapshot_bytes = self._gauge(
            "coordinator_snapshot_bytes",
            "Size of the last known snapshot, which is the least distance to the next one; 0 for none.",
            "shard",
        )
        self.coordinator_snapshots_taken = self._counter("coordinator_snapshots_taken", "Snapshots taken.", "shard")
        self.coordinator_snapshot_failures = self._counter(
            "coordinator_snapshot_failures", "Snapshots that failed and were put off.", "shard"
        )
        self.coordinator_snapshot_timestamp_seconds = self._gauge(
            "coordinator_snapshot_timestamp_seconds",
            "When the last known snapshot was taken, in seconds since the epoch; 0 for none.",
            "shard",
        )

    def _declare_plugins(self) -> None:
        self._plugins = HealthCollector()
        self.registry.register(self._plugins)
        for declared in DECLARATIONS:
            name = f"{declared.name}_total" if declared.kind == "counter" else declared.name
            self._describe(declared.kind, name, declared.text, declared.labels)

    def _declare_log(self) -> None:
        self.log_lines_lost = LostLines()
        self.registry.register(self.log_lines_lost)
        self._describe("counter", f"{LostLines.NAME}_total", LostLines.TEXT, LostLines.LABELS)

    def watch_plugins(self, book: HealthBook) -> None:
        """Export the health of all backends in a book, read afresh by each scrape."""
        self._plugins.book = book

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self._describe("counter", f"{name}_total", text, labels)
        return Counter(f"diskless_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        self._describe("gauge", name, text, labels)
        return Gauge(f"diskless_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        self._describe("histogram", name, text, labels)
        return Histogram(f"diskless_{name}", text, labels, registry=self.registry, buckets=_LATENCY_BUCKETS_S)

    def _describe(self, kind: str, name: str, text: str, labels: Sequence[str]) -> None:
        self.descriptions.append(
            MetricDescription(area=self._area, name=f"diskless_{name}", type=kind, labels=tuple(labels), help=text)
        )


class LostLines:
    """Lines of the log that were dropped, as the output counts them itself: it must not wait for a metric's lock."""

    NAME = "log_lines_lost"
    TEXT = (
        "Lines to standard error and standard output that were dropped. reason is full where too many waited because "
        "nothing read the stream, and failed where it could not be written."
    )
    LABELS = ("reason",)

    def __init__(self) -> None:
        self._lost: Callable[[], Mapping[str, int]] = dict

    def watch(self, lost: Callable[[], Mapping[str, int]]) -> None:
        """Export how many lines were dropped, by reason, asked for by each scrape."""
        self._lost = lost

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The counter, as the registry asks for it."""
        family = CounterMetricFamily(f"diskless_{self.NAME}", self.TEXT, labels=self.LABELS)
        for reason, lines in self._lost().items():
            family.add_metric([reason], lines)
        yield family


_PREAMBLE = """\
# Metrics

<!-- Generated by `make docs`. Edit diskless_core/metrics.py instead. -->

`GET /metrics` on `admin.listener` answers these in Prometheus' text format. Of a histogram there are the series
`_bucket`, `_sum` and `_count`; all times are in seconds, all sizes in bytes. The usual `process_*` metrics (CPU,
memory, open files) come with them.
"""


def render_reference() -> str:
    """docs/metrics.md, from the declarations above."""
    by_area = groupby(Metrics().descriptions, lambda metric: metric.area)
    return _PREAMBLE + "".join(f"\n## {area}\n{''.join(map(_entry, metrics))}" for area, metrics in by_area)


def _entry(metric: MetricDescription) -> str:
    labels = f" · *Labels:* {', '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
    return f"\n#### `{metric.name}`\n\n{metric.help}\n\n*Type:* {metric.type}{labels}\n"
