"""What clients do between the points of a backup, on logs that brokers look at rarely: S3 with its defaults, a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from diskless_core.cli import cluster_backup
from diskless_core.cli.backup import Backup, BackupRun
from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.moto_s3 import moto_s3
from tests.support.requests import (
    commit_offset,
    committed_offset,
    create_topic,
    delete_topic,
    fetch,
    list_offset,
    metadata_request,
    new_producer_id,
    produce,
)
from tests.support.waiting import wait_until

KEYS = {"key": "test-key", "secret": "test-secret"}
GROUP = "group"

Settings = Callable[[Path], Mapping[str, str]]
"""The settings of a cluster that has a folder for itself."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The endpoint of S3 as moto plays it, with a bucket."""
    with moto_s3() as port:
        endpoint = f"http://127.0.0.1:{port}"
        keys = {"aws_access_key_id": KEYS["key"], "aws_secret_access_key": KEYS["secret"]}
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
        client.create_bucket(Bucket="bucket")
        client.close()
        yield endpoint


@pytest.fixture(params=["bucket", "local"])
def settings(request: pytest.FixtureRequest, bucket: str) -> Settings:
    def on_s3(folder: Path) -> dict[str, str]:
        place = {"url": f"s3://bucket/{folder.name}", "endpoint.url": bucket, "region": "us-east-1", **KEYS}
        return {
            **on_one_bucket(folder),
            **{f"wal_object_store.fsspec.{name}": value for name, value in place.items()},
            "offsets.topic.num.partitions": "1",
            "diskless.metadata.topic.num.partitions": "2",
        }

    def on_disk(folder: Path) -> dict[str, str]:
        return {"coordinator_log": "local", "wal_object_store.fsspec.url": (folder / "bucket").as_uri()}

    return on_s3 if request.param == "bucket" else on_disk


@dataclass
class Clients:
    """What they have done, and were told."""

    broker: BrokerProcess
    acknowledged: int = 0
    highest_id: int = -1

    def write_and_read(self) -> None:
        """A new producer writes a record, and a consumer commits that it has read it."""
        with self.broker.connect() as wire:
            self.highest_id = new_producer_id(wire)
            batch = batch_of(b"%d" % self.acknowledged, producer_id=self.highest_id, producer_epoch=0, base_sequence=0)
            answer = produce(wire, "stays", batch)
            assert answer.error_code == ErrorCode.NONE
            self.acknowledged = answer.base_offset + 1
            wait_until(lambda: commit_offset(wire, GROUP, "stays", self.acknowledged) == 0, "the offset is committed")

    def create(self, name: str) -> None:
        with self.broker.connect() as wire:
            create_topic(wire, name, 2)
            assert produce(wire, name, batch_of(b"of %b" % name.encode())).error_code == ErrorCode.NONE

    def delete(self, name: str) -> None:
        with self.broker.connect() as wire:
            assert delete_topic(wire, name) == ErrorCode.NONE


def written(folder: Path, properties: Mapping[str, str]) -> Path:
    """The settings of a cluster as a file, for commands. A local log is where its broker has it."""
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file


def test_what_happens_between_the_points_is_there_or_not_but_never_in_part(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: tmp_path / f"{name}-{settings.__name__}" for name in ("old", "new")}
    for folder in folders.values():
        folder.mkdir()
    files = {
        name: written(folder, {**settings(folder), "log.dirs": str(folder / "broker" / "data")})
        for name, folder in folders.items()
    }
    old, new = (BrokerProcess(folder / "broker", {"node.id": "1", **settings(folder)}) for folder in folders.values())
    clients = Clients(old)
    try:
        old.start()
        for name in ("stays", "goes"):
            clients.create(name)
        clients.write_and_read()
        before = clients.acknowledged

        def groups_are_read() -> None:
            clients.write_and_read()
            clients.create("comes-first")

        def diskless_coordinators_are_read() -> None:
            clients.write_and_read()
            clients.create("comes-last")
            clients.delete("goes")

        read = BackupRun._read_diskless_with_objects

        async def slow(self: BackupRun, *given: Any) -> Any:
            await asyncio.to_thread(groups_are_read)
            found = await read(self, *given)
            await asyncio.to_thread(diskless_coordinators_are_read)
            return found

        monkeypatch.setattr(BackupRun, "_read_diskless_with_objects", slow)
        made: Backup = asyncio.run(cluster_backup._backup(files["old"], (), files["new"]))
        old.stop()
        assert (made.lacking, made.deleted, made.vanished_segments) == ([], [], 0)
        assert (made.came, made.gone) == (["comes-last"], ["goes"])
        asyncio.run(cluster_backup._restore(files["new"], ()))
        new.start()
        with new.connect() as wire:
            end, committed = list_offset(wire, "stays", -1).offset, committed_offset(wire, GROUP, "stays")[1]
            assert committed == before <= end - 1, "what was written before the coordinators were read is there"
            assert read_values(fetch(wire, "stays", committed).records)
            described = {topic.name: topic.error_code for topic in wire.call(metadata_request("goes"), 12).topics}
            assert described == {"goes": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            for name in ("stays", "comes-first", "comes-last"):
                for partition in (0, 1):
                    wait_until(
                        lambda name=name, partition=partition: (
                            produce(wire, name, batch_of(b"new"), partition).error_code == ErrorCode.NONE
                        ),
                        f"{name} is written to",
                    )
                    assert read_values(fetch(wire, name, 0, partition).records)
            assert read_values(fetch(wire, "comes-first", 0).records)[0] == b"of comes-first"
            assert new_producer_id(wire) > clients.highest_id
    finally:
        old.end()
        new.end()
