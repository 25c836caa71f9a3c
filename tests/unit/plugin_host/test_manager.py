"""Choosing plugins by name, and making backends from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.errors import PluginNotFoundError
from diskless_core.plugin_host.manager import PluginManager, SelectedPlugin
from diskless_core.plugin_host.nouns import NOUNS, OFFSET_ASSIGNMENT
from tests.broken_plugins.stand_ins import announce_stand_ins
from tests.broken_plugins.zoo import announce


def test_an_unknown_name_is_answered_with_the_nearest_and_with_what_there_is():
    manager = PluginManager([*announce_stand_ins(), announce("healthy")])

    with pytest.raises(PluginNotFoundError, match="'animel'; installed are animal, sequential") as caught:
        manager.get("offset_assignment", "animel")
    assert caught.value.suggestion == "animal"


def test_an_unknown_noun_is_answered_with_the_nearest_noun():
    with pytest.raises(PluginNotFoundError, match="there is no kind of plugin 'wal_store'") as caught:
        PluginManager([]).get("wal_store", "fsspec")
    assert caught.value.suggestion == "wal_object_store"


def test_a_plugin_is_imported_once_however_often_it_is_asked_for():
    entry_point = announce("healthy")
    imports = []

    def load():
        imports.append(entry_point.value)
        return entry_point.load()

    manager = PluginManager([replace(entry_point, load=load)])
    first = manager.get("offset_assignment", "animal")
    catalogue = manager.catalogue()

    assert catalogue.loaded == [first]
    assert len(imports) == 1


def test_the_catalogue_is_in_the_order_of_the_nouns_and_then_by_name():
    manager = PluginManager([announce("healthy"), *reversed(announce_stand_ins()), announce("no_hook", name="zebra")])

    catalogue = manager.catalogue()

    names = {noun.name: [noun.default] for noun in NOUNS.values()} | {"offset_assignment": ["animal", "sequential"]}
    loaded = [plugin.entry_point.key for plugin in catalogue.loaded]
    assert loaded == [f"{noun}.{name}" for noun in NOUNS for name in names[noun]]
    shown = ["coordinator_log.local", "coordinator_store.sqlite", "wal_object_store.fsspec", "offset_assignment.animal"]
    assert loaded[: len(shown)] == shown
    assert [plugin.entry_point.key for plugin in catalogue.quarantined] == ["offset_assignment.zebra"]


def test_a_backend_gets_its_own_context_and_its_settings(tmp_path):
    manager = PluginManager([announce("healthy")])
    descriptor = manager.get("offset_assignment", "animal").descriptor
    settings = descriptor.settings.model_validate({"step.size": 3})

    def make_context(noun, name):
        return PluginContext(node_id=7, data_dir=tmp_path / noun / name, log_dir=tmp_path, clock=SystemClock())

    backend = manager.create(
        OFFSET_ASSIGNMENT, {"offset_assignment": SelectedPlugin(descriptor, settings)}, make_context
    )

    behind = backend._backend
    assert behind.context.data_dir == tmp_path / "offset_assignment" / "animal"
    assert behind.settings.step_size == 3


def test_every_noun_knows_itself_and_its_descriptor():
    for name, noun in NOUNS.items():
        assert noun.name == name == noun.descriptor.noun
        assert noun.hook == f"diskless_{name}s"
