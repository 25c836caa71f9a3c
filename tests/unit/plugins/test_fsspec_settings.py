"""Settings of the fsspec store: what they choose, which are refused, and that no secret is ever shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.testing.remote_storage_tools import copied, make_segment
from diskless_fsspec import factory
from diskless_fsspec.bucket_segments import BucketSegmentStore
from diskless_fsspec.bucket_store import BucketStore
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.factory import make_store
from diskless_fsspec.gcs_store import GcsObjectStore
from diskless_fsspec.local_segments import LocalSegmentStore
from diskless_fsspec.local_store import LocalObjectStore
from diskless_fsspec.memory_store import MemoryObjectStore
from diskless_fsspec.plugin import diskless_remote_storages, diskless_wal_object_stores
from diskless_fsspec.remote_storage import FsspecRemoteStorage
from diskless_fsspec.s3_store import S3ObjectStore
from diskless_fsspec.sync_segments import SyncSegmentStore
from diskless_fsspec.sync_store import SyncFilesystemStore


@pytest.fixture
def context(tmp_path: Path) -> PluginContext:
    return PluginContext(node_id=1, data_dir=tmp_path / "data", log_dir=tmp_path / "log", clock=SystemClock())


@pytest.mark.parametrize(
    ("url", "expected", "billed", "node_local"),
    [
        ("", LocalObjectStore, False, True),
        ("file:///srv/wal", LocalObjectStore, False, True),
        ("memory://name", MemoryObjectStore, False, True),
        ("s3://bucket/prefix", S3ObjectStore, True, False),
        ("gs://bucket", GcsObjectStore, True, False),
        ("sftp://host/folder", SyncFilesystemStore, True, False),
    ],
)
def test_the_url_chooses_the_store_and_nothing_is_opened(
    context: PluginContext, url: str, expected: type, billed: bool, node_local: bool
) -> None:
    store = make_store(context, FsspecSettings(url=url))
    assert type(store) is expected
    assert (store.requests_are_billed, store.is_node_local) == (billed, node_local)
    assert not context.log_dir.exists()


@pytest.mark.parametrize("noun", ["wal_object_store", "remote_storage"])
@pytest.mark.parametrize(("url", "client", "extra"), [("s3://b/p", "s3fs", "s3"), ("gs://b/p", "gcsfs", "gcs")])
def test_validate_says_which_extra_a_url_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noun: str, url: str, client: str, extra: str
) -> None:
    monkeypatch.setattr(factory, "find_spec", lambda name: None if name == client else object(), raising=False)
    properties = tmp_path / "server.properties"
    properties.write_text(f"{noun}.fsspec.url={url}\n")

    done = CliRunner().invoke(main, ["plugins", "validate", str(properties)])

    assert done.exit_code == 1
    assert f"{client} is not installed" in done.output
    assert f"pip install 'diskless[{extra}]'" in done.output


@pytest.mark.parametrize(
    ("url", "expected", "node_local"),
    [
        ("", LocalSegmentStore, True),
        ("file:///srv/segments", LocalSegmentStore, True),
        ("memory://name", SyncSegmentStore, True),
        ("sftp://host/folder", SyncSegmentStore, False),
        ("s3://bucket/prefix", BucketSegmentStore, False),
        ("gs://bucket", BucketSegmentStore, False),
    ],
)
def test_the_url_chooses_the_place_of_segments_and_nothing_is_opened(
    context: PluginContext, url: str, expected: type, node_local: bool
) -> None:
    (descriptor,) = diskless_remote_storages()
    storage = descriptor.factory(context, descriptor.settings(url=url))
    assert isinstance(storage, FsspecRemoteStorage)
    assert type(storage.store) is expected
    assert storage.is_node_local == node_local
    assert not context.log_dir.exists()


async def test_objects_are_in_a_folder_of_log_dirs_by_default(context: PluginContext) -> None:
    (descriptor,) = diskless_wal_object_stores()
    store = descriptor.factory(context, descriptor.settings())
    await store.start()
    await store.put("a/b", b"data")
    await store.stop()
    assert (context.log_dir / "wal-objects" / "a" / "b").read_bytes() == b"data"


async def test_segments_are_in_a_folder_of_log_dirs_by_default(context: PluginContext) -> None:
    (descriptor,) = diskless_remote_storages()
    storage = descriptor.factory(context, descriptor.settings())
    await storage.start()
    await copied(storage, make_segment())
    await storage.stop()
    assert [path.parent.parent.parent for path in context.log_dir.rglob("*.log")] == [
        context.log_dir / "remote-storage"
    ]


async def test_a_file_url_may_hold_escaped_characters(context: PluginContext, tmp_path: Path) -> None:
    store = make_store(context, FsspecSettings(url=f"file://{tmp_path}/with%20space%3F%23"))
    await store.start()
    await store.put("a", b"data")
    await store.stop()
    assert (tmp_path / "with space?#" / "a").read_bytes() == b"data"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"url": "bucket/prefix"}, "must be a URL"),
        ({"url": "s3://id:hush@bucket"}, "must not hold credentials"),
        ({"endpoint.url": "http://id:hush@host"}, "must not hold credentials"),
        ({"endpoint.url": "host:9000"}, "must be a URL"),
        ({"url": "file:///srv/a#b"}, "must write"),
        ({"url": "file:///srv/a?b"}, "must write"),
        ({"options": "hush"}, "must be a JSON object"),
        ({"options": '["hush"]'}, "must be a JSON object"),
        ({"key": "hush"}, "must be set together"),
        ({"secret": "hush"}, "must be set together"),
        ({"threads": "0"}, "greater than 0"),
    ],
)
def test_bad_settings_are_refused_without_showing_what_was_given(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        FsspecSettings.model_validate(properties)
    assert "hush" not in str(caught.value)


def test_secrets_are_not_in_any_text_form(context: PluginContext) -> None:
    settings = FsspecSettings.model_validate(
        {"url": "s3://b", "key": "hush-key", "secret": "hush-secret", "options": '{"token": "hush-token"}'}
    )
    store = make_store(context, settings)
    assert isinstance(store, BucketStore)
    assert "hush" not in "".join([repr(settings), settings.model_dump_json(), repr(store), repr(store.options)])


def test_settings_become_arguments_of_the_file_system_and_options_come_before_them(context: PluginContext) -> None:
    settings = FsspecSettings.model_validate(
        {
            "url": "s3://bucket",
            "endpoint.url": "http://127.0.0.1:9000",
            "key": "id",
            "secret": "hush",
            "region": "eu-north-1",
            "max.connections": "7",
            "options": '{"secret": "other", "config_kwargs": {"signature_version": "s3"}, "anon": true}',
        }
    )
    store = make_store(context, settings)
    assert isinstance(store, BucketStore)
    arguments = store.options.arguments
    assert arguments["endpoint_url"] == "http://127.0.0.1:9000"
    assert (arguments["key"], arguments["secret"], arguments["anon"]) == ("id", "other", True)
    assert arguments["client_kwargs"] == {"region_name": "eu-north-1"}
    assert arguments["config_kwargs"]["max_pool_connections"] == 7
    assert arguments["config_kwargs"]["signature_version"] == "s3"


def test_naming_the_plugin_imports_no_client() -> None:
    code = "import sys, diskless_fsspec.plugin; sys.exit(bool({'fsspec', 's3fs', 'gcsfs'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_sessions_of_s3_share_what_describes_the_service_and_keep_the_profile(
    context: PluginContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aws").write_text("[profile prod]\naws_access_key_id=PROD\naws_secret_access_key=x\nregion=eu-west-3\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)
    settings = FsspecSettings.model_validate({"url": "s3://bucket", "options": '{"profile": "prod"}'})
    loaders = set()
    for _ in range(2):
        store = make_store(context, settings)
        assert isinstance(store, S3ObjectStore)
        filesystem = await store.connect()
        credentials = await filesystem.session.get_credentials()
        assert (credentials.access_key, filesystem.s3.meta.region_name) == ("PROD", "eu-west-3")
        loaders.add(filesystem.session.get_component("data_loader"))
        await store.disconnect(filesystem)
    assert len(loaders) == 1
