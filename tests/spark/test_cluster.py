"""Spark and three brokers, of which the one that was asked first dies: what it led is compacted at the next leader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_spark import register
from tests.integration.test_compaction_of_a_cluster import (
    TIMEOUT_S,
    assert_once,
    mortal_cluster,
    producing,
)
from tests.support.armed import arm
from tests.support.broker_cluster import BrokerCluster, settled

TOPIC = "events"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    made = mortal_cluster(tmp_path)
    try:
        yield made.start()
    finally:
        made.end()


def test_a_compaction_by_spark_and_a_query_find_the_leaders_when_the_broker_dies_that_was_asked_first(
    cluster: BrokerCluster, spark: SparkSession
) -> None:
    leader, *_ = settled(cluster.brokers)
    dying, survivor = cluster.brokers[leader], cluster.brokers[1 if leader != 1 else 2]
    producer = producing(survivor, TOPIC)
    arm(dying)
    urls = f"{dying.admin},{survivor.admin}"
    settings = [part for item in dying._properties.items() for part in ("-o", "=".join(item))]
    options = ["--engine", "spark", "--here", "--topic", TOPIC, "--everything", "--json", "--url", urls, *settings]
    done = CliRunner().invoke(main, ["compact", *options])
    assert done.exit_code == 0, done.output
    dying._running().wait(TIMEOUT_S)
    report = json.loads(done.stdout)
    assert (report["state"], report["engine"], report["failures"]) == ("finished", "spark", [])
    assert [job["node_id"] for job in report["jobs"] if job["state"] == "lost"] == [leader]
    assert_once(cluster, survivor, TOPIC, producer)

    register(spark)
    places = {name: dying._properties[name] for name in ("wal_object_store.fsspec.url", "remote_storage.fsspec.url")}
    query = spark.read.format("diskless").options(**places, **{"diskless.url": urls, "subscribe": TOPIC})
    assert query.load().count() == len(producer.acknowledged)
