"""A broker that is set up as if it were of another cluster ends, and says which of its settings is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the brokers of a running cluster of one have in common."""
    folder = tmp_path_factory.mktemp("cluster")
    shared = on_one_bucket(folder)
    broker = BrokerProcess(folder / "broker-1", {**shared, "node.id": "1"})
    try:
        broker.start()
        yield shared
    finally:
        broker.end()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"cluster.id": "another"},
            r"the coordinator log is that of the cluster \S+, not another: change cluster.id",
        ),
        (
            {"coordinator_log": "local"},
            "to be one of that cluster, give it that cluster's coordinator_log, with its",
        ),
        ({"coordinator_log.bucket.prefix": "mistyped"}, "give it that cluster's coordinator_log, with its settings"),
    ],
    ids=["cluster id", "log", "prefix of the log"],
)
def test_a_broker_of_another_cluster_ends(
    shared: dict[str, str], tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    broker = BrokerProcess(tmp_path, {**shared, "node.id": "2", **wrong})
    try:
        with pytest.raises(AssertionError, match=message):
            broker.start()
    finally:
        broker.end()


@pytest.mark.parametrize("node_id", ["2", "auto"])
def test_a_broker_without_a_listener_for_others_ends(shared: dict[str, str], tmp_path: Path, node_id: str) -> None:
    """One without a node id could not even ask for it."""
    without = {key: value for key, value in shared.items() if key != "inter.broker.listener.name"}
    broker = BrokerProcess(tmp_path, {**without, "node.id": node_id})
    try:
        with pytest.raises(AssertionError, match=r"set inter\.broker\.listener\.name to the name of a listener"):
            broker.start()
    finally:
        broker.end()
