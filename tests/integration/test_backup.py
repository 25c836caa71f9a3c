"""A cluster is copied while it is written to, and another one begins with the copy, beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DeleteRecordsRequest
from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket, view
from tests.support.requests import commit_offset, committed_offset, create_topic, fetch, produce
from tests.support.waiting import wait_until
from tests.support.wire import WireClient

PARTITIONS = 4
NODE_IDS = (1, 2)
COMMAND_TIMEOUT_S = 300.0
ACKNOWLEDGED_FIRST = 20
"""In each partition, before the backup begins."""

CHURNED = "churned"
"""Its records are deleted as soon as they are acknowledged, so that objects are deleted while others are copied."""


Acknowledged = dict[int, bytes]
"""Values by offset, of one partition."""


class Load:
    """Producers, one for each partition, and what was acknowledged to them. They go on whatever happens."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._ends = threading.Event()
        self.acknowledged: list[Acknowledged] = [{} for _ in range(PARTITIONS)]
        self.deleted = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(PARTITIONS + 1) as pool:
            running = [pool.submit(self._produce, partition) for partition in range(PARTITIONS)]
            running.append(pool.submit(self._churn))
            try:
                yield
            finally:
                self._ends.set()
        for one in running:
            one.result()

    def so_far(self) -> list[Acknowledged]:
        return [dict(values) for values in self.acknowledged]

    def _produce(self, partition: int) -> None:
        numbers = count()

        def step(wire: WireClient) -> None:
            value = b"%d-%d" % (partition, next(numbers))
            answer = produce(wire, self._topic, batch_of(value), partition)
            if answer.error_code == ErrorCode.NONE:
                self.acknowledged[partition][answer.base_offset] = value

        self._again_and_again(step)

    def _churn(self) -> None:
        def step(wire: WireClient) -> None:
            answer = produce(wire, CHURNED, batch_of(b"soon gone"))
            if answer.error_code == ErrorCode.NONE and delete_before(wire, CHURNED, answer.base_offset + 1):
                self.deleted += 1

        self._again_and_again(step)

    def _again_and_again(self, step: Callable[[WireClient], None]) -> None:
        while not self._ends.is_set():
            with suppress(OSError, EOFError), self._broker.connect() as wire:
                while not self._ends.is_set():
                    step(wire)


def delete_before(wire: WireClient, topic: str, offset: int) -> bool:
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    partition = asked.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[asked(name=topic, partitions=[partition])], timeout_ms=10_000)
    [answer] = wire.call(request, 2).topics[0].partitions
    return bool(answer.error_code == ErrorCode.NONE)


def settings(folder: Path) -> dict[str, str]:
    return {
        **on_one_bucket(folder),
        "admin.listener": "http://127.0.0.1:0",
        "diskless.metadata.topic.num.partitions": "2",
        "metadata.log.max.record.bytes.between.snapshots": "5000",  # so that logs are pruned meanwhile
        "diskless.file.delete.delay.ms": "1000",
        "broker.session.timeout.ms": "60000",
        "auto.leader.rebalance.enable": "false",
        "remote_storage.fsspec.url": (folder / "segments").as_uri(),
    }


def brokers_in(folder: Path) -> Mapping[int, BrokerProcess]:
    return {
        node_id: BrokerProcess(folder / f"broker-{node_id}", {"node.id": str(node_id), **settings(folder)})
        for node_id in NODE_IDS
    }


def start(brokers: Mapping[int, BrokerProcess]) -> None:
    with ThreadPoolExecutor(len(brokers)) as pool:
        list(pool.map(BrokerProcess.start, brokers.values()))


def written(folder: Path) -> Path:
    """The settings of a cluster as a file, for commands."""
    folder.mkdir(exist_ok=True)
    file = folder / "server.properties"
    properties = {**settings(folder), "log.dirs": str(folder / "of-commands")}
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file


def run(*command: str) -> subprocess.CompletedProcess[str]:
    diskless = str(Path(sys.executable).with_name("diskless"))
    return subprocess.run(
        [diskless, "cluster", *command], capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S
    )


def appended(broker: BrokerProcess, topic: str) -> int | None:
    """The offset of a new record; None where it was refused."""
    with broker.connect() as wire:
        answer = produce(wire, topic, batch_of(b"new"))
    return answer.base_offset if answer.error_code == ErrorCode.NONE else None


def read_all(broker: BrokerProcess, topic: str, partition: int) -> list[bytes]:
    values = list[bytes]()
    with broker.connect() as wire:
        while some := read_values(fetch(wire, topic, len(values), partition).records):
            values += some
    return values


def told(made: subprocess.CompletedProcess[str]) -> Any:
    """What a backup says of itself: it lacks nothing but records that were deleted while it was made."""
    assert made.stdout, made.stderr
    said = json.loads(made.stdout)
    assert said["lacking"] == []
    assert {deleted["topic"] for deleted in said["deleted"]} <= {CHURNED}
    assert made.returncode == 0, made.stderr
    return said


def commits(broker: BrokerProcess, topic: str, offset: int) -> bool:
    with broker.connect() as wire:
        return commit_offset(wire, "group", topic, offset) == ErrorCode.NONE


def committed(broker: BrokerProcess, topic: str) -> int | None:
    """The group's offset; None at a broker that does not have the group, and answers without topics."""
    with broker.connect() as wire:
        try:
            return committed_offset(wire, "group", topic)[1]
        except IndexError:
            return None


def having(broker: BrokerProcess, topic: str, partition: int, wanted: Acknowledged) -> list[bytes] | None:
    """All values of a partition; None while some of those that are wanted are not among them."""
    values = read_all(broker, topic, partition)
    return values if wanted.items() <= dict(enumerate(values)).items() else None


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Mapping[int, BrokerProcess], Mapping[int, BrokerProcess]]]:
    old, new = brokers_in(tmp_path / "old"), brokers_in(tmp_path / "new")
    yield old, new
    for broker in (*old.values(), *new.values()):
        broker.end()


def test_a_copy_under_load_becomes_a_cluster_that_has_all_that_was_acknowledged_before(
    clusters: tuple[Mapping[int, BrokerProcess], Mapping[int, BrokerProcess]], tmp_path: Path, topic: str
) -> None:
    old, new = clusters
    old_settings, new_settings = written(tmp_path / "old"), written(tmp_path / "new")
    start(old)
    with old[1].connect() as wire:
        create_topic(wire, topic, PARTITIONS)
        create_topic(wire, CHURNED)
    wait_until(lambda: any(commits(broker, topic, 7) for broker in old.values()), "the group's coordinator took it")
    load = Load(old[2], topic)
    with load.running():
        wait_until(
            lambda: min(map(len, load.acknowledged)) >= ACKNOWLEDGED_FIRST and load.deleted >= ACKNOWLEDGED_FIRST,
            "records were acknowledged in all partitions",
        )
        before = load.so_far()

        made = run("backup", "--config", str(old_settings), "--to", str(new_settings), "--json")

        said = told(made)
        assert load.so_far() != before, "nothing was written meanwhile"
        again = run("backup", "--config", str(old_settings), "--to", str(new_settings), "--json")
        assert told(again)["copied_objects"] < len(list((tmp_path / "new" / "bucket").rglob("*")))
        restored = run("restore", "--config", str(new_settings))
        assert restored.returncode == 0, restored.stdout + restored.stderr
        refused = run("backup", "--config", str(old_settings), "--to", str(new_settings))
        assert (refused.returncode, "was restored there" in refused.stderr) == (1, True), refused.stderr

        start(new)  # with the node ids of brokers that run
        after_start = load.so_far()
        kept = [wait_until(partial(having, new[2], topic, *one), "the copy has it") for one in enumerate(before)]
        offset = wait_until(lambda: appended(new[1], topic), "the new cluster takes records")
        wait_until(lambda: 7 in [committed(broker, topic) for broker in new.values()], "the group's offset is there")
        wait_until(lambda: len(load.acknowledged[0]) > len(after_start[0]), "the old cluster goes on")
    for partition, values in enumerate(kept):
        assert all(load.acknowledged[partition].get(at, one) == one for at, one in enumerate(values))
        wait_until(partial(having, old[1], topic, partition, load.acknowledged[partition]), "the old cluster has all")
    assert offset is not None
    assert offset >= len(kept[0])
    assert view(old[1])["cluster_id"] == view(new[1])["cluster_id"] == said["cluster_id"]
    for one, other in ((old, new), (new, old)):
        known = {broker["http"] for broker in view(one[1])["brokers"]}
        assert not known & {broker["http"] for broker in view(other[1])["brokers"]}
