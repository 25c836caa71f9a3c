"""A broken plugin stops the broker only where it is the selected one, and never tells a secret."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import replace

import pytest

from diskless_core.clock import SystemClock
from diskless_core.config.errors import ConfigError
from diskless_core.config.load import load_config
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.errors import PluginConflictError, PluginFactoryError, PluginLoadError
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import OFFSET_ASSIGNMENT
from tests.broken_plugins.stand_ins import announce_stand_ins
from tests.broken_plugins.zoo import announce

SECRET = "hunter2"


def manager_with(*entry_points):
    return PluginManager([*announce_stand_ins(), *entry_points])


def fail_when_loaded():
    pytest.fail("it was imported")


def test_a_plugin_that_is_not_selected_is_not_even_imported():
    manager = manager_with(replace(announce("healthy"), load=fail_when_loaded))

    loaded = load_config(None, [], {}, manager)

    assert loaded.plugins["offset_assignment"].descriptor.name == "sequential"


def test_a_broken_plugin_that_is_selected_is_a_problem_of_the_configuration():
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["offset_assignment=animal"], {}, manager_with(announce("import_error")))

    (problem,) = caught.value.problems
    assert problem.value == "animal"
    assert problem.message.startswith("plugin offset_assignment.animal of zoo 1.2 can't be used: importing")
    assert "diskless plugins list" in problem.message


def test_a_selected_plugin_that_fails_carries_its_traceback():
    with pytest.raises(PluginLoadError) as caught:
        manager_with(announce("import_error")).get("offset_assignment", "animal")

    assert "import a_package_that_nobody_has" in caught.value.traceback_text


def test_two_providers_of_one_name_are_both_named():
    manager = manager_with(
        announce("healthy", distribution="zoo"), announce("healthy", distribution="circus", version="3.0")
    )

    with pytest.raises(PluginConflictError, match=r"offset_assignment\.animal is provided by zoo 1\.2 and circus 3\.0"):
        manager.get("offset_assignment", "animal")
    conflicting = [
        plugin for plugin in manager.catalogue().quarantined if plugin.entry_point.key == "offset_assignment.animal"
    ]
    assert [plugin.entry_point.distribution for plugin in conflicting] == ["circus", "zoo"]
    assert all("zoo 1.2 and circus 3.0" in plugin.reason for plugin in conflicting)


def test_a_third_party_cannot_take_the_name_of_a_built_in_plugin():
    manager = manager_with(announce("healthy", name="sequential"))

    with pytest.raises(PluginConflictError, match=r"diskless 0 and zoo 1\.2"):
        manager.get("offset_assignment", "sequential")


@pytest.mark.parametrize("name", ["leaky", "careless"])
def test_a_secret_in_the_message_of_a_settings_check_is_removed(name):
    overrides = [f"offset_assignment={name}", f"offset_assignment.{name}.password={SECRET}"]

    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides, {}, manager_with(announce("leaks_secret", name=name)))

    (problem,) = caught.value.problems
    assert problem.value is None
    assert "**********" in problem.message
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.problems)
    assert SECRET not in shown


def settings_of(name, **values):
    selected = PluginManager([announce("leaks_secret", name=name)]).get("offset_assignment", name).descriptor
    return {"offset_assignment": (selected, selected.settings(**values))}


def test_a_secret_in_the_message_of_a_factory_is_removed(tmp_path):
    selected = settings_of("leaky", password=SECRET * 2)

    with pytest.raises(PluginFactoryError, match=r"login with \*+ was refused") as caught:
        PluginManager([]).create(OFFSET_ASSIGNMENT, selected, context_in(tmp_path))

    shown = "".join(traceback.format_exception(caught.value)) + caught.value.traceback_text
    assert SECRET not in shown
    assert "PermissionError" in caught.value.traceback_text


def test_a_secret_in_the_message_of_a_factory_is_removed_in_other_processes_too(tmp_path):
    selected = settings_of("leaky", password=SECRET * 2)
    source = pickle.loads(pickle.dumps(PluginManager([]).source(OFFSET_ASSIGNMENT, selected, context_in(tmp_path))))

    with pytest.raises(PluginFactoryError, match=r"login with \*+ was refused") as caught:
        source()

    told = pickle.loads(pickle.dumps(caught.value))
    shown = "".join([*traceback.format_exception(caught.value), *traceback.format_exception(told)])
    assert SECRET not in shown + told.traceback_text
    assert "PermissionError" in told.traceback_text


@pytest.mark.parametrize("make", [PluginManager.create, lambda *arguments: PluginManager.source(*arguments)()])
def test_a_factory_has_to_make_what_its_noun_says(tmp_path, make):
    selected = settings_of("something_else")

    with pytest.raises(PluginFactoryError, match="made object, which is no OffsetAssignment"):
        make(PluginManager([]), OFFSET_ASSIGNMENT, selected, context_in(tmp_path))


def context_in(folder):
    def make(noun, name):
        return PluginContext(node_id=1, data_dir=folder / noun / name, log_dir=folder, clock=SystemClock())

    return make
