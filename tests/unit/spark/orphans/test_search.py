"""What a search does before it asks Spark, and what a broker imports that only selects it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from diskless_core.clock import SystemClock
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_core.testing.orphan_detection import search_of
from diskless_spark.backends import why_unreachable
from diskless_spark.orphans.search import newest_snapshots
from tests.support.shards import ShardNode

CLOCK = SystemClock()
RETRYING = Retrying(Backoff(attempts=3, first_ms=0, max_ms=0, jitter=0), CLOCK)


@pytest.mark.parametrize("operation", [Operation.LIST, Operation.GET])
async def test_a_store_that_is_busy_does_not_end_a_search(operation: Operation) -> None:
    objects = MemoryWalObjectStore(CLOCK)
    shard = DISKLESS.shard(0)
    snapshots = Snapshots(objects, "wal-snapshots", CLOCK)
    node = ShardNode(SharedLog(), CLOCK, shard_id=shard, snapshots=snapshots)
    await node.start()
    await node.shard.flush()
    await node.shard.take_snapshot(snapshots)
    await node.stop()
    for _ in range(2):
        objects.fail_next(operation)
    assert [*await newest_snapshots(search_of(objects), RETRYING)] == [shard]


def test_a_plugin_that_a_broker_selects_imports_no_spark_and_no_arrow() -> None:
    code = "import sys, diskless_spark.plugin, diskless_spark.orphans.plugin; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "pandas", "py4j", "pyarrow", "pyspark"} & set(answer.stdout.split())
    code = "import sys, diskless_spark.plugin; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "diskless_spark.orphans" not in answer.stdout


def test_tasks_have_to_reach_the_backends() -> None:
    store = MemoryWalObjectStore(CLOCK)
    assert "in the memory of one process" in str(why_unreachable(store, elsewhere=None))
    store.is_process_local = False
    assert why_unreachable(store, elsewhere="yarn") is None
    store.is_node_local = True
    assert why_unreachable(store, elsewhere=None) is None
    assert "elsewhere (yarn)" in str(why_unreachable(store, elsewhere="yarn"))
