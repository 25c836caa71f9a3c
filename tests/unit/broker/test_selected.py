"""What is told of the selected backends."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest

from diskless_core.broker.contexts import configured_contexts
from diskless_core.broker.selected import plugin_packages, selected_plugins
from diskless_core.clock import SystemClock
from diskless_core.config.load import load_config
from diskless_core.plugin_host.discovery import BUILT_IN_DISTRIBUTION, installed_entry_points
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import NOUNS, WAL_OBJECT_STORE

SECRET = "hunter2-hunter2"


@pytest.fixture
def manager():
    return PluginManager(entry for entry in installed_entry_points() if entry.distribution == BUILT_IN_DISTRIBUTION)


@pytest.fixture
def loaded(manager, tmp_path):
    overrides = [
        f"log.dirs={tmp_path}",
        f"wal_object_store.fsspec.url=file://{tmp_path / 'objects'}",
        f'wal_object_store.fsspec.options={{"password": "{SECRET}"}}',
    ]
    return load_config(None, overrides, {}, manager)


def test_every_noun_is_shown_with_its_plugin_and_where_it_comes_from(loaded, manager):
    answer = selected_plugins(loaded, manager)

    assert [one["noun"] for one in answer["selected"]] == list(NOUNS)
    for one in answer["selected"]:
        assert (one["distribution"], one["version"]) == ("diskless", version("diskless"))
        assert one["location"].endswith(".py")
        assert (one["source"], one["state"], one["health"]["calls"]) == ("default", "made", 0)
    assert answer["process"]["resident_bytes"] > 1 << 20
    assert answer["process"]["threads"] >= 1


def test_settings_are_shown_with_their_source_and_without_secrets(loaded, manager, tmp_path):
    answer = selected_plugins(loaded, manager)
    [store] = [one for one in answer["selected"] if one["noun"] == "wal_object_store"]
    settings = {one["name"]: (one["value"], one["source"]) for one in store["settings"]}

    assert settings["wal_object_store.fsspec.url"] == (f"file://{tmp_path / 'objects'}", "--override")
    assert settings["wal_object_store.fsspec.options"] == ("**********", "--override")
    assert SECRET not in json.dumps(answer)


async def test_what_a_backend_does_is_in_its_health(loaded, manager):
    contexts = configured_contexts(loaded, manager, SystemClock(), node_id=1)
    contexts_without_secrets = loaded.plugins | {
        "wal_object_store": loaded.plugins["wal_object_store"]._replace(
            settings=loaded.plugins["wal_object_store"].settings.model_copy(update={"options": None})
        )
    }
    store = manager.create(WAL_OBJECT_STORE, contexts_without_secrets, contexts)
    await store.start()
    await store.put("a", b"1")
    await store.stop()

    [shown] = [one for one in selected_plugins(loaded, manager)["selected"] if one["noun"] == "wal_object_store"]
    assert (shown["state"], shown["health"]["calls"], shown["health"]["results"]["ok"]) == ("stopped", 3, 3)


def test_packages_are_known_by_the_plugin_that_has_them(loaded, manager):
    packages = plugin_packages(loaded, manager)

    assert set(packages.values()) >= {"wal_object_store.fsspec", "coordinator_store.sqlite"}
    assert not [package for package in packages if package.partition(".")[0] == "diskless_core"]
