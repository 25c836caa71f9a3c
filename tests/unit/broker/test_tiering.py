"""How a broker starts tiered storage: with remote storage that is not safe enough for its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from diskless_core.broker.errors import StartError
from diskless_core.broker.node import Node
from diskless_core.clock import SystemClock
from diskless_core.config.load import load_config
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.tiering.compaction import CompactionRequest
from diskless_core.tiering.topics import UnknownTopicError
from diskless_fsspec.local_store import LocalObjectStore


def node(folder: Path, *overrides: str) -> Node:
    settings: Sequence[str] = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={folder}", *overrides)
    plugins = PluginManager.discover({})
    return Node(load_config(None, settings, {}, plugins), plugins, SystemClock())


@pytest.fixture
def _objects_in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalObjectStore, "is_node_local", False)


@pytest.mark.usefixtures("_objects_in_a_bucket")
async def test_records_are_not_moved_from_a_bucket_to_the_disk_of_a_broker(tmp_path: Path) -> None:
    broker = node(tmp_path)
    await broker.start()
    compactor = broker.tiered_storage().compactor
    for engine in (None, "inline"):
        with pytest.raises(PluginError, match=r"set remote_storage to a place .* remote_storage\.fsspec\.url=s3://"):
            compactor.begin(CompactionRequest(engine=engine))
    with pytest.raises(PluginError, match="set remote_storage to a place"):
        compactor.begin_external(CompactionRequest(), "spark", "driver")
    assert [segment async for segment in compactor.plan(CompactionRequest())] == []
    await broker.stop()


@pytest.mark.usefixtures("_objects_in_a_bucket")
async def test_a_broker_that_is_to_do_so_by_and_by_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"remote\.log\.storage\.system\.enable=true: .* set remote_storage"):
        await node(tmp_path, "remote.log.storage.system.enable=true").start()


async def test_where_both_are_on_the_disk_of_a_broker_records_may_be_moved(tmp_path: Path) -> None:
    broker = node(tmp_path, "remote.log.storage.system.enable=true")
    await broker.start()
    broker.tiered_storage().compactor.begin(CompactionRequest())
    await broker.stop()


async def test_segments_of_a_topic_that_is_not_there_are_an_error_as_its_compaction_is(tmp_path: Path) -> None:
    broker = node(tmp_path)
    await broker.start()
    tiered = broker.tiered_storage()
    assert await tiered.remote_log.segments(topic=None, partition=None) == []
    with pytest.raises(UnknownTopicError, match="there is no topic nope"):
        await tiered.remote_log.segments(topic="nope", partition=None)
    with pytest.raises(UnknownTopicError, match="there is no topic nope"):
        tiered.compactor.begin(CompactionRequest(topics=["nope"]))
    await broker.stop()
