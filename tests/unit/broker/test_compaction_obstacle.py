"""Records are never compacted to where they would be less safe than they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskless_core.broker.errors import StartError
from diskless_core.broker.node import Node
from diskless_core.clock import SystemClock
from diskless_core.config.load import load_config
from diskless_core.plugin_host.discovery import installed_entry_points
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.tiering.compaction import compaction_obstacle
from tests.unit.plugin.documented import announced

PROCESS, NODE, SHARED = "memory of this process", "disk of this broker", "everywhere"


def at(place: str) -> tuple[MemoryWalObjectStore, MemoryRemoteStorage]:
    backends = MemoryWalObjectStore(SystemClock()), MemoryRemoteStorage()
    for backend in backends:
        backend.is_process_local = place == PROCESS
        backend.is_node_local = place != SHARED
    return backends


@pytest.mark.parametrize(
    ("objects", "segments", "is_allowed"),
    [
        (SHARED, SHARED, True),
        (SHARED, NODE, False),
        (SHARED, PROCESS, False),
        (NODE, SHARED, True),
        (NODE, NODE, True),
        (NODE, PROCESS, False),
        (PROCESS, SHARED, True),
        (PROCESS, NODE, True),
        (PROCESS, PROCESS, True),
    ],
)
def test_records_are_only_moved_to_where_they_are_as_safe(objects: str, segments: str, is_allowed: bool) -> None:
    obstacle = compaction_obstacle(at(objects)[0], at(segments)[1])

    assert (obstacle is None) == is_allowed
    if obstacle is not None:
        assert segments in obstacle


@pytest.mark.parametrize(("log_is_shared", "is_allowed"), [(True, False), (False, True)])
def test_brokers_that_share_a_log_move_no_records_to_where_only_one_of_them_finds_them(
    log_is_shared: bool, is_allowed: bool
) -> None:
    objects, segments = at(NODE)
    segments.is_broker_local = True

    obstacle = compaction_obstacle(objects, segments, log_is_shared=log_is_shared)

    assert (obstacle is None) == is_allowed
    if obstacle is not None:
        assert "a folder of this broker alone" in obstacle
        assert "remote_storage.fsspec.url" in obstacle


async def test_the_example_of_a_remote_storage_gets_no_records_of_a_broker_that_keeps_them(tmp_path: Path) -> None:
    plugins = PluginManager([*installed_entry_points(), announced("remote_storage")])
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}", "remote_storage=dict"]
    loaded = load_config(None, [*settings, "remote.log.storage.system.enable=true"], {}, plugins)

    with pytest.raises(StartError, match="to the memory of this process, where they are lost when it ends"):
        await Node(loaded, plugins, SystemClock()).start()
