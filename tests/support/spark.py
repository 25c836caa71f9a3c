"""A Spark for tests: loopback only, no web interface, little of everything."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.maven import jars_or_skip


def spark_environment() -> dict[str, str]:
    """What a process has to have in its environment before it starts a Spark."""
    return {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def settings(folder: Path) -> Mapping[str, str]:
    """What every Spark of the tests is told."""
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.jars": ",".join(sorted(map(str, jars_or_skip("spark").glob("*.jar")))),
    }


def start_spark(folder: Path, master: str = "local[2]") -> SparkSession:
    """The one session that a process can have; whoever starts it stops it."""
    os.environ.update(spark_environment())
    builder = SparkSession.builder.master(master).appName("tests")
    for key, value in settings(folder).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
