"""A broker starts on the objects of its own cluster only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.requests import append, create_topic, fetch

URL = "wal_object_store.fsspec.url"


def with_a_record(broker: BrokerProcess, topic: str) -> BrokerProcess:
    with broker.connect() as wire:
        create_topic(wire, topic)
        append(wire, topic, batch_of(b"value"))
    return broker


def assert_readable(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as wire:
        assert read_values(fetch(wire, topic, 0).records) == [b"value"]


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_cluster_on_the_same_objects_does_not_start(
    new_broker: BrokerFactory, topic: str, tmp_path: Path
) -> None:
    bucket = tmp_path / "bucket"
    first = with_a_record(new_broker({URL: bucket.as_uri()}), topic)
    kept = content(bucket)
    with pytest.raises(
        AssertionError, match="the log knows of no objects, and below wal/ there are the objects of the cluster"
    ):
        new_broker({URL: bucket.as_uri()})
    assert content(bucket) == kept
    beside = with_a_record(new_broker({URL: bucket.as_uri(), "diskless.wal.object.prefix": "second"}), topic)
    first.restart()
    for broker in (first, beside):
        assert_readable(broker, topic)


@pytest.mark.parametrize("settings", [{}, {"cluster.id": "aNumberOfItsOwn0123456"}], ids=["any id", "cluster.id"])
def test_a_young_broker_that_has_lost_its_log_does_not_start(
    new_broker: BrokerFactory, topic: str, settings: dict[str, str]
) -> None:
    """There is no snapshot yet that would tell of it."""
    broker = with_a_record(new_broker(settings), topic)
    broker.stop()
    data = broker.folder / "data"
    metadata = [data / "coordinator_log", data / "coordinator_store"]
    aside = [path.rename(path.with_suffix(".aside")) for path in metadata]
    kept = content(data / "wal-objects")
    for _ in range(2):
        with pytest.raises(
            AssertionError, match="the log knows of no objects, and below wal/ there are the objects of the cluster"
        ):
            broker.start()
    assert content(data / "wal-objects") == kept
    for path, there in zip(metadata, aside, strict=True):
        shutil.rmtree(path, ignore_errors=True)
        there.rename(path)
    broker.start()
    assert_readable(broker, topic)


def test_a_broker_whose_objects_are_elsewhere_does_not_start(new_broker: BrokerFactory, topic: str) -> None:
    broker = with_a_record(new_broker({}), topic)
    broker.stop()
    objects = broker.folder / "data" / "wal-objects"
    elsewhere = objects.rename(objects.with_name("elsewhere"))
    with pytest.raises(AssertionError, match="which has topics, and no object wal-snapshots/cluster says"):
        broker.start()
    shutil.rmtree(objects, ignore_errors=True)
    elsewhere.rename(objects)
    broker.start()
    assert_readable(broker, topic)
