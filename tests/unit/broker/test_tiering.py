"""How a broker starts tiered storage: with remote storage that is away, or not safe enough for its records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from diskless_core.broker.errors import StartError
from diskless_core.broker.node import Node
from diskless_core.broker.tiering import AwaitedRemoteStorage
from diskless_core.clock import SystemClock
from diskless_core.config.load import load_config
from diskless_core.config.tiering import TieringConfig
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.manager import PluginManager
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, access_denied, unavailable
from diskless_core.testing.remote_storage_tools import copied, make_segment, read_log
from diskless_core.tiering.compaction import CompactionRequest, UnknownTopicError
from diskless_core.tiering.retrying import Retries
from diskless_fsspec.local_store import LocalObjectStore
from tests.support.virtual_time import VirtualClock, run


class LateStorage(MemoryRemoteStorage):
    """One that starts when all its errors have been raised. Not before does anybody use it."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = deque(errors)
        self.starts = 0
        self.is_stopped = False

    async def start(self) -> None:
        self.starts += 1
        if self.errors:
            raise self.errors.popleft()

    async def stop(self) -> None:
        self.is_stopped = True


def awaited(storage: LateStorage) -> AwaitedRemoteStorage:
    clock = VirtualClock(asyncio.get_running_loop())
    return AwaitedRemoteStorage(storage, Retries(TieringConfig(), clock))


def test_a_storage_that_cannot_be_reached_is_started_as_soon_as_it_can_be() -> None:
    async def main() -> None:
        inner = LateStorage(unavailable(), unavailable())
        storage = awaited(inner)
        await storage.start()
        segment = make_segment()
        for call in (
            storage.copy(segment.metadata, segment.data()),
            storage.fetch(segment.metadata, 0, 1),
            storage.delete(segment.metadata),
        ):
            with pytest.raises(RemoteStorageError, match="remote_storage: 503 Service Unavailable") as caught:
                await call
            assert caught.value.retriable
        await asyncio.sleep(5)
        assert inner.starts == 3
        assert await read_log(storage, await copied(storage, segment)) == segment.log
        await storage.stop()
        assert inner.is_stopped

    run(main)


def test_an_error_that_no_retry_helps_ends_the_start_and_says_whose_it_is() -> None:
    async def main() -> None:
        inner = LateStorage(access_denied())
        with pytest.raises(RemoteStorageError, match="remote_storage: 403 AccessDenied") as caught:
            await awaited(inner).start()
        assert not caught.value.retriable
        await asyncio.sleep(100)
        assert inner.starts == 1

    run(main)


def test_what_comes_after_an_outage_ends_no_attempts() -> None:
    async def main() -> None:
        inner = LateStorage(unavailable(), access_denied(), RuntimeError("a defect"))
        storage = awaited(inner)
        await storage.start()
        await asyncio.sleep(0.7)
        with pytest.raises(RemoteStorageError, match="403 AccessDenied"):
            await storage.delete(make_segment().metadata)
        await asyncio.sleep(10)
        await storage.delete(make_segment().metadata)

    run(main)


def test_a_storage_that_never_comes_is_tried_ever_less_often_and_holds_up_no_stop() -> None:
    async def main() -> None:
        inner = LateStorage(*[unavailable()] * 1000)
        storage = awaited(inner)
        await storage.start()
        await asyncio.sleep(3600)
        assert 100 < inner.starts < 200
        await storage.stop()
        started = inner.starts
        await asyncio.sleep(3600)
        assert inner.starts == started

    run(main)


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
        compactor.lend(CompactionRequest(), "spark", "driver")
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
