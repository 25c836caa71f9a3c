"""Which entry points are looked at."""

from __future__ import annotations

import pytest

from diskless_core.plugin.errors import PluginNotFoundError
from diskless_core.plugin_host.discovery import allowed_entry_points, installed_entry_points
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import NOUNS
from tests.broken_plugins.stand_ins import announce_stand_ins
from tests.broken_plugins.zoo import announce

BUILT_IN = {f"{noun.name}.{noun.default}" for noun in NOUNS.values()}
INSTALLED = [
    *announce_stand_ins(),
    announce("healthy"),
    announce("healthy", name="beast", distribution="zoo"),
    announce("healthy", name="clown", distribution="circus"),
]


def allowed(value):
    return {entry_point.key for entry_point in allowed_entry_points(INSTALLED, {"DISKLESS_LOAD_PLUGINS": value})}


def test_without_a_limit_every_installed_plugin_is_allowed():
    assert len(allowed_entry_points(INSTALLED, {})) == len(INSTALLED)


def test_the_empty_limit_leaves_the_built_in_plugins():
    assert allowed("") == BUILT_IN


def test_a_limit_names_distributions_and_single_plugins():
    assert allowed("zoo") == BUILT_IN | {"offset_assignment.animal", "offset_assignment.beast"}
    assert allowed(" offset_assignment.beast , circus") == BUILT_IN | {
        "offset_assignment.beast",
        "offset_assignment.clown",
    }


def test_a_limit_that_names_nothing_installed_is_refused_with_the_nearest_name():
    with pytest.raises(PluginNotFoundError, match=r"names 'offset_assignment\.beats'") as caught:
        allowed("offset_assignment.beats")
    assert caught.value.suggestion == "offset_assignment.beast"


def test_a_plugin_outside_of_the_limit_cannot_be_chosen():
    manager = PluginManager.discover({"DISKLESS_LOAD_PLUGINS": "circus"}, lambda: INSTALLED)

    with pytest.raises(PluginNotFoundError, match="there is no offset_assignment 'animal'"):
        manager.get("offset_assignment", "animal")
    assert manager.get("offset_assignment", "sequential").descriptor.name == "sequential"


def test_this_distribution_announces_the_default_backend_of_every_noun():
    installed = {entry.key for entry in installed_entry_points() if entry.distribution == "diskless"}

    assert installed >= BUILT_IN
