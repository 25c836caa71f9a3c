"""The example of a whole pipeline, run as its reader would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyarrow import dataset

from tests.support.broker import BrokerFactory
from tests.support.downloads import CHECKOUT
from tests.support.spark import settings, spark_environment

EXAMPLE = CHECKOUT / "spark/examples/pipeline.py"
VIEWS = 3_000
TIMEOUT_S = 540


def test_page_views_are_queried_plotted_and_exported(new_broker: BrokerFactory, tmp_path: Path) -> None:
    broker = new_broker({"admin.listener": "http://127.0.0.1:0"})
    config, out = tmp_path / "server.properties", tmp_path / "views"
    config.write_text(f"log.dirs={broker.folder / 'data'}\nadmin.listener={broker.admin}\n")
    conf = {**settings(tmp_path), "spark.databricks.delta.snapshotPartitions": "2"}
    spark = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    environment = {
        **os.environ,
        **spark_environment(),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_SUBMIT_ARGS": " ".join([*spark, "--master", "local[2]", "pyspark-shell"]),
        "MPLCONFIGDIR": str(tmp_path / "matplotlib"),
    }
    command = [sys.executable, EXAMPLE, "--config", config, "--bootstrap", broker.bootstrap, "--out", out, "--delta"]
    done = subprocess.run(
        [*map(str, command), "--views", str(VIEWS)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checkout" in done.stdout
    assert (out / "views.png").read_bytes().startswith(b"\x89PNG")
    for folder in ("parquet", "delta"):
        files = [str(path) for path in (out / folder).glob("day=*/*.parquet")]
        rows = dataset.dataset(files).to_table(columns=["offset", "user"])
        assert sorted(rows["offset"].to_pylist()) == list(range(VIEWS)), "the topic has one partition"
        assert None not in rows["user"].to_pylist()
    assert list((out / "delta/_delta_log").glob("*.json"))
