"""Metadata of remote segments in an Apache Kafka keeps the contract."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataServices
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.testing.remote_log_metadata import RemoteLogMetadataContract
from diskless_core.testing.remote_log_metadata_lookups import MakeMetadata
from diskless_core.testing.remote_log_metadata_tools import CLUSTER_ID, TIMEOUT_S
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.metadata_topic import node, topic_settings


@pytest.fixture(autouse=True, scope="module")
def _no_socket_is_left_to_later_tests() -> Iterator[None]:
    """One that is not closed is told here, and not in whatever test the garbage collector finds it."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def make_node(apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> MakeMetadata:
    settings = topic_settings(apache_kafka.bootstrap, "remote-segments-of-the-contract")
    folder = tmp_path_factory.mktemp("contract")
    folders = (folder / f"node-{number}" for number in itertools.count())
    return lambda: node(settings, next(folders))


class OnAnotherLoop:
    """A node on an event loop of its own, which tests on theirs may share: it takes a while to connect."""

    def __init__(self, made: RemoteLogMetadata, loop: asyncio.AbstractEventLoop) -> None:
        self._made = made
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            done = asyncio.run_coroutine_threadsafe(getattr(self._made, name)(*arguments), self._loop)
            return await asyncio.wrap_future(done)

        return call


@pytest.fixture(scope="module")
def shared_node(make_node: MakeMetadata) -> Iterator[OnAnotherLoop]:
    made, loop = make_node(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    services = RemoteLogMetadataServices(cluster_id=CLUSTER_ID, ledger=MemoryLedger())
    try:
        asyncio.run_coroutine_threadsafe(made.start(services), loop).result(TIMEOUT_S)
        yield OnAnotherLoop(made, loop)
    finally:
        asyncio.run_coroutine_threadsafe(made.stop(), loop).result(TIMEOUT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class TestKafka(RemoteLogMetadataContract):
    secrets = ("correct-horse",)

    @pytest.fixture
    def make_unreachable_metadata(self, tmp_path: Path) -> MakeMetadata:
        settings = topic_settings(
            f"127.0.0.1:{free_ports(1)[0]}",
            "remote-segments-of-nobody",
            initialization_attempt_timeout_ms=1000,
            common_client_options=json.dumps(
                {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": "diskless",
                    "sasl.password": "correct-horse",
                }
            ),
        )
        return lambda: node(settings, tmp_path)

    @pytest.fixture
    def make_metadata(self, make_node: MakeMetadata) -> MakeMetadata:
        return make_node

    @pytest.fixture
    def metadata(self, shared_node: OnAnotherLoop) -> OnAnotherLoop:  # type: ignore[override]
        return shared_node
