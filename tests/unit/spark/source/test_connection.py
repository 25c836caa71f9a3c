"""Where a Diskless is: from options, the environment and the file, in this order, and ready to be sent to executors."""

from __future__ import annotations

import pickle
import platform
import re
from dataclasses import replace
from typing import ClassVar

import pytest

from diskless_core.broker.contexts import plugin_contexts
from diskless_core.clock import SystemClock
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.snapshots import snapshot_prefix
from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_spark.backends import SteadyObjects, started_objects
from diskless_spark.source import tables
from diskless_spark.source.connection import connect
from diskless_spark.source.decoding import Place
from diskless_spark.source.layouts import still_there
from diskless_spark.source.offsets import Position
from diskless_spark.source.options import SourceOptionError, parse
from diskless_spark.source.source import DisklessDataSource, ReadTask
from tests.unit.spark.source.worlds import World


def options(**given: str):
    return parse({"subscribe": "a"} | given, is_stream=False)


def context_of(source):
    return next(argument for argument in source.args if isinstance(argument, PluginContext))


def settings_of(source):
    return next(argument for argument in source.args if isinstance(argument, PluginSettings))


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(
        f"log.dirs={tmp_path}/one,{tmp_path}/two\nadmin.listener=http://10.0.0.1:9000\n"
        "diskless.wal.object.prefix=wal/prod\nwal_object_store.fsspec.url=file:///from-file\n"
        "wal_object_store.fsspec.threads=7\nnode.id=3\n"
    )
    return str(path)


def test_all_comes_from_the_file(config, tmp_path):
    found = connect(options(**{"diskless.config": config}), {})
    assert settings_of(found.objects).url == "file:///from-file"
    assert settings_of(found.objects).threads == 7
    assert context_of(found.segments).log_dir == tmp_path / "one"
    assert (found.urls, found.snapshot_prefix) == (("http://10.0.0.1:9000",), "wal/prod-snapshots")


def test_what_is_not_configured_is_where_a_broker_has_it():
    defaults = BrokerConfig()
    found = connect(options(), {})
    assert (found.urls, found.snapshot_prefix) == ((str(defaults.admin_listener),), snapshot_prefix(defaults))
    assert context_of(found.objects) == plugin_contexts(defaults, context_of(found.objects).clock, node_id=-1)(
        "wal_object_store", "fsspec"
    )


def test_options_win_over_the_environment_and_that_over_the_file(config):
    given = {"diskless.config": config, "diskless.url": "http://other:1/"}
    environ = {
        "DISKLESS_CONFIG_WAL_OBJECT_STORE_FSSPEC_URL": "file:///from-environment",
        "DISKLESS_CONFIG_WAL_OBJECT_STORE_FSSPEC_THREADS": "8",
    }
    found = connect(options(**given, **{"wal_object_store.fsspec.url": "file:///from-option"}), environ)
    assert settings_of(found.objects).url == "file:///from-option"
    assert settings_of(found.objects).threads == 8
    assert found.urls == ("http://other:1",)


def test_executors_make_the_backends_for_themselves(config):
    sent = pickle.loads(pickle.dumps(connect(options(**{"diskless.config": config}), {})))
    assert isinstance(sent.objects(), WalObjectStore)
    assert isinstance(sent.segments(), RemoteStorage)
    assert sent.objects().is_node_local


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"diskless.config": "/nowhere"}, "diskless.config: /nowhere can't be read"),
        ({"wal_object_store.fsspec.ulr": "x"}, "did you mean wal_object_store.fsspec.url"),
        ({"wal_object_store": "fspec"}, "installed are"),
        ({"remote_storage.fsspec.threads": "none"}, "remote_storage.fsspec.threads: Input should be"),
    ],
)
def test_bad_ones(given, message):
    with pytest.raises(SourceOptionError, match=message):
        connect(options(**given), {})


def test_a_bad_secret_is_not_told():
    given = {"wal_object_store.fsspec.options": "hidden words", "wal_object_store.fsspec.url": "s3://b"}
    with pytest.raises(SourceOptionError) as raised:
        connect(options(**given), {})
    assert "hidden" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("noun", ["wal_object_store", "remote_storage"])
def test_backends_in_memory_are_refused_when_a_query_begins(noun):
    given = {"subscribe": "a", f"{noun}.fsspec.url": "memory://x"}
    with pytest.raises(SourceOptionError, match="in the memory of one process, where Spark's tasks do not see them"):
        DisklessDataSource(given).reader(tables.full_schema(include_headers=False))


def test_a_folder_is_refused_by_a_task_on_another_machine(config):
    schema = tables.full_schema(include_headers=False)
    query = DisklessDataSource({"subscribe": "a", "diskless.config": config}).reader(schema)
    task = ReadTask(())
    assert list(query.rows(task)) == []
    query.connection = replace(query.connection, machine="the driver's")
    with pytest.raises(SourceOptionError, match=f"elsewhere .{platform.node()}.*remote_storage to a bucket"):
        list(query.rows(task))


def test_topics_that_are_gone_do_not_keep_others_from_being_found():
    there = World.empty(0)

    class Some:
        asked: ClassVar[list[str]] = []

        def of(self, subscription, position):
            assert position == begun
            self.asked.append(subscription.pattern)
            return [there, World.empty(1)] if re.fullmatch(subscription.pattern, "t") else []

    places = [Place("t", 0), *(Place(f"gone.{number}", 0) for number in range(120))]
    begun = Position(topic_ids=dict.fromkeys((place.topic for place in places), "id"), offsets=dict.fromkeys(places, 7))
    assert still_there(Some(), begun) == [there]
    assert len(Some.asked) == 3
    assert not any(re.fullmatch(pattern, "gone-1") for pattern in Some.asked), "a dot is one"


async def test_snapshots_are_read_from_a_store_that_is_busy_at_times():
    objects = MemoryWalObjectStore(SystemClock())
    objects.objects = {"a/1": b"1", "a/2": b"22"}
    retrying = Retrying(Backoff(attempts=3, first_ms=0, max_ms=0, jitter=0), SystemClock())
    async with started_objects(lambda: objects, retrying) as store:
        steady = SteadyObjects(store, retrying)
        for _ in range(2):
            objects.fail_next(Operation.LIST)
        assert [found.key async for page in steady.list("a/") for found in page] == ["a/1", "a/2"]
        objects.fail_next(Operation.GET)
        assert await steady.get("a/2", 0, 9) == b"22"
