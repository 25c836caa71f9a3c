"""Where records lie: a broker's answer over HTTP, and what its bucket says without it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import httpx
import pytest

from diskless_core.cli.backends import Backends
from diskless_core.coordinator.snapshots import snapshot_prefix
from diskless_core.layout.codec import CONTENT_TYPE, decode_layouts
from diskless_core.layout.partition import PartitionLayout
from diskless_core.protocol.names import uuid_text
from diskless_core.snapshot.format import SnapshotError
from diskless_core.snapshot.layouts import read_layouts
from tests.support.batches import batch_of
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.cluster import Cluster, in_thread
from tests.support.requests import append, create_topic
from tests.support.waiting import wait_until

SETTINGS = {
    "admin.listener": "http://127.0.0.1:0",
    "diskless.append.commit.interval.ms": "5",
    "diskless.metadata.topic.num.partitions": "2",
    "metadata.log.max.snapshot.interval.ms": "1",
}


def layouts(broker: BrokerProcess, **query: str | Sequence[str]) -> list[PartitionLayout]:
    with urlopen(f"{broker.admin}/topics/layout?{urlencode(query, doseq=True)}") as response:
        assert response.headers["content-type"] == CONTENT_TYPE
        return list(decode_layouts(response))


def layouts_from(broker: BrokerProcess, offsets: Mapping[str, Mapping[str, int]]) -> list[PartitionLayout]:
    answer = httpx.post(f"{broker.admin}/topics/layout", json={"pattern": ".*", "from": offsets}).raise_for_status()
    return list(decode_layouts(answer.iter_lines()))


def layouts_in_bucket(broker: BrokerProcess) -> Sequence[PartitionLayout]:
    backends = Backends.configured(None, [f"log.dirs={broker.folder / 'data'}"])

    async def read() -> Sequence[PartitionLayout]:
        async with backends.objects() as objects:
            return (await read_layouts(objects, snapshot_prefix(backends.config), lambda name: True)).layouts

    return asyncio.run(read())


def compact(broker: BrokerProcess, topic: str) -> None:
    job = httpx.post(f"{broker.admin}/compaction", json={"topics": [topic], "everything": True}).raise_for_status()
    url = f"{broker.admin}/compaction/{job.json()['id']}"
    wait_until(lambda: httpx.get(url).json()["state"] in ("finished", "failed"), "the compaction has ended")
    assert httpx.get(url).json()["state"] == "finished"


def test_a_broker_and_its_bucket_say_the_same(new_broker: BrokerFactory) -> None:
    broker = new_broker(SETTINGS)
    with broker.connect() as wire:
        create_topic(wire, "t", 2)
        create_topic(wire, "other", 1)
        for number in range(6):
            append(wire, "t", batch_of(b"%d" % number, b"more"), partition=number % 2)
            append(wire, "other", batch_of(b"%d" % number))
        compact(broker, "t")
        append(wire, "t", batch_of(b"last"), partition=1)
    found = layouts(broker)
    assert [(one.partition.topic, one.partition.partition) for one in found] == [("other", 0), ("t", 0), ("t", 1)]
    other, first, second = found
    assert (other.end_offset, other.segments, other.ranges[0].base_offset) == (6, (), 0)
    assert (first.end_offset, [one.end_offset for one in first.segments], first.ranges) == (6, [5], ())
    assert (second.end_offset, [one.end_offset for one in second.segments]) == (7, [5])
    (last,) = second.ranges
    assert (last.base_offset, last.last_offset) == (6, 6)
    assert (broker.folder / "data/wal-objects" / last.object_key).is_file()

    def is_in_bucket() -> bool:
        with suppress(SnapshotError):  # some snapshots are not there yet
            return layouts_in_bucket(broker) == found
        return False

    wait_until(is_in_bucket, "the snapshots have it")

    assert layouts(broker, topic=["t"]) == found[1:]
    assert layouts(broker, topic=["other", "t"]) == layouts(broker, pattern="other|.") == found
    assert layouts(broker, pattern="othe") == []
    topic_id = uuid_text(second.partition.topic_id)
    assert layouts_from(broker, {topic_id: {"1": 6}, uuid_text(uuid.UUID(int=7)): {"0": 9}}) == [
        other,
        first,
        replace(second, segments=()),
    ]
    for body in ({"from": {"no id": {"0": 1}}}, {"from": {topic_id: {"0": "first"}}}, {"topic": ["t"]}):
        assert httpx.post(f"{broker.admin}/topics/layout", json=body).status_code == 422
    for query, code, message in (
        ("topic=missing", 404, "there is no topic missing"),
        ("pattern=(", 422, "no valid regular expression"),
    ):
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{broker.admin}/topics/layout?{query}")
        assert (refused.value.code, message in refused.value.read().decode()) == (code, True)
        refused.value.close()


async def test_any_broker_tells_where_the_records_of_all_lie(tmp_path: Path) -> None:
    async with Cluster(tmp_path, {0: 1, 1: 2}) as cluster:

        def produce() -> None:
            with cluster.connect(1) as wire:
                create_topic(wire, "t", 2)
                for number in range(4):
                    append(wire, "t", batch_of(b"value"), partition=number % 2)

        await in_thread(produce)
        for node in cluster.nodes.values():
            source = node.tiered_storage().layouts
            pinned = await source.pin(["t"], lambda name: False, {})
            lines = [line async for block in source.encoded(pinned) for line in block.splitlines()]
            assert [(one.end_offset, one.ranges[-1].last_offset) for one in decode_layouts(lines)] == [(2, 1), (2, 1)]
