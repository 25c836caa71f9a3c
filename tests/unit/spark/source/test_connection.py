"""Where a Diskless is: from options, the environment and the file, in this order, and ready to be sent to executors."""

from __future__ import annotations

import pickle

import pytest

from diskless_core.broker.contexts import plugin_contexts, snapshot_prefix
from diskless_core.config.broker import BrokerConfig
from diskless_spark.source.connection import connect
from diskless_spark.source.layouts import LayoutError, Layouts
from diskless_spark.source.options import SnapshotKind, SourceOptionError, parse


def options(**given: str):
    return parse({"subscribe": "a"} | given, is_stream=False)


def context_of(source):
    return source.args[-2]


def settings_of(source):
    return source.args[-1]


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
    assert (found.url, found.snapshot_prefix) == ("http://10.0.0.1:9000", "wal/prod-snapshots")


def test_what_is_not_configured_is_where_a_broker_has_it():
    defaults = BrokerConfig()
    found = connect(options(), {})
    assert (found.url, found.snapshot_prefix) == (str(defaults.admin_listener), snapshot_prefix(defaults))
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
    assert found.url == "http://other:1"


def test_executors_make_the_backends_for_themselves(config):
    sent = pickle.loads(pickle.dumps(connect(options(**{"diskless.config": config}), {})))
    assert type(sent.objects()).__name__ == "LocalObjectStore"
    assert type(sent.segments()).__name__ == "FsspecRemoteStorage"


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


@pytest.mark.parametrize(
    ("url", "message"),
    [("http://127.0.0.1:1", "does not answer.*diskless.snapshot=bucket"), ("broker:9644", "no address of a broker")],
)
def test_a_broker_that_is_not_there(url, message):
    asked = options(**{"diskless.url": url})
    layouts = Layouts(connection=connect(asked, {}), kind=SnapshotKind.BROKER)
    with pytest.raises(LayoutError, match=message):
        layouts.of(asked.subscription)
