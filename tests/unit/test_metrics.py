"""The broker's own figures."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from diskless_core.metrics import Metrics, render_reference

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def samples(metrics):
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


@dataclass
class StubShard:
    leading: bool = False
    next_offset: int = 0
    pending_commands: int = 0
    stored_offset: int = 0
    unflushed_rows: int = 0
    held_back: bool = False
    bytes_since_snapshot: int = 0
    snapshot_bytes: int = 0
    snapshot_taken_at: int = 0


def test_counted_events_appear_in_the_exposition():
    metrics = Metrics()
    metrics.produce_records.inc(7)
    metrics.fetch_bytes.labels("cache").inc(9)

    exposed = samples(metrics)

    assert exposed["diskless_produce_records_total",] == 7
    assert exposed["diskless_fetch_bytes_total", "cache"] == 9


def test_a_shard_is_read_afresh_by_each_scrape():
    metrics, shard = Metrics(), StubShard()
    metrics.watch_shard("__diskless_metadata-0", shard)
    before = samples(metrics)
    shard.leading, shard.next_offset, shard.pending_commands = True, 42, 3
    shard.stored_offset, shard.unflushed_rows = 40, 5
    shard.bytes_since_snapshot, shard.snapshot_bytes, shard.snapshot_taken_at = 1000, 900, 1_700_000_000_500
    after = samples(metrics)

    assert before["diskless_coordinator_leading", "__diskless_metadata-0"] == 0
    assert after["diskless_coordinator_leading", "__diskless_metadata-0"] == 1
    assert after["diskless_coordinator_applied_offset", "__diskless_metadata-0"] == 42
    assert after["diskless_coordinator_pending_commands", "__diskless_metadata-0"] == 3
    assert after["diskless_coordinator_stored_offset", "__diskless_metadata-0"] == 40
    assert after["diskless_coordinator_unflushed_rows", "__diskless_metadata-0"] == 5
    assert after["diskless_coordinator_log_bytes_since_snapshot", "__diskless_metadata-0"] == 1000
    assert after["diskless_coordinator_snapshot_bytes", "__diskless_metadata-0"] == 900
    assert after["diskless_coordinator_snapshot_timestamp_seconds", "__diskless_metadata-0"] == 1_700_000_000.5


def test_producers_are_counted_by_each_scrape():
    metrics, producers = Metrics(), [1]
    metrics.watch_producers("__diskless_metadata-0", lambda: len(producers))
    producers.append(2)

    assert samples(metrics)["diskless_coordinator_producers", "__diskless_metadata-0"] == 2


def test_two_brokers_in_one_process_count_apart():
    one, other = Metrics(), Metrics()
    one.produce_batches.inc()

    assert samples(other)["diskless_produce_batches_total",] == 0


def test_the_reference_names_every_exposed_metric():
    metrics = Metrics()
    exposed = {f.name for f in text_string_to_metric_families(metrics.exposition().decode())}
    documented = {description.name.removesuffix("_total") for description in metrics.descriptions}

    assert {name for name in exposed if not name.startswith("process_")} == documented | {
        f"{description.name}_created".replace("_total_created", "_created")
        for description in metrics.descriptions
        if description.type != "gauge" and not description.labels
    }


def test_the_committed_page_is_what_the_code_renders():
    assert PAGE.read_text(encoding="utf-8") == render_reference()


def test_importing_the_metrics_brings_in_no_http_framework():
    code = "import sys, diskless_core.metrics; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"fastapi", "uvicorn", "starlette"} & set(loaded)
