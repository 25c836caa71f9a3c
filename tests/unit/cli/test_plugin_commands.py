"""Commands that plugins bring are found, called and, where they can't be used, explained."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.plugin.command_groups import COMMAND_GROUP
from diskless_core.plugin_host import manager
from tests.broken_plugins.command_groups import GROUPS
from tests.broken_plugins.zoo import announce


@pytest.fixture(autouse=True)
def zoo(monkeypatch):
    """Nothing is installed but the zoo, which announces a command of Diskless itself too."""
    entry_points = [announce("command_groups", noun=COMMAND_GROUP, name=name) for name in [*GROUPS, "serve"]]
    monkeypatch.setattr(manager.PluginManager.discover.__func__, "__defaults__", (lambda: entry_points,))
    return entry_points


def call(*arguments):
    return CliRunner().invoke(main, arguments)


def test_commands_of_a_plugin_are_called_like_any_other():
    assert call("works", "feed").stdout == "fed\n"
    assert "clean" in call("works", "--help").stdout


def test_the_help_lists_them_and_those_that_cannot_be_used():
    shown = call("--help").stdout
    assert all(name in shown for name in GROUPS)


def test_a_command_of_diskless_itself_is_not_replaced():
    assert "Run a broker" in call("serve", "--help").stdout


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "importing tests.broken_plugins.command_groups:absent failed"),
        ("no_app", "is no typer.Typer"),
        ("no_reference", "is not of the form <module>:<attribute>"),
    ],
)
def test_what_cannot_be_used_says_why_when_it_is_called(name, reason):
    result = call(name, "feed", "--with", "hay")
    assert result.exit_code == 1
    assert reason in result.stderr


def test_two_distributions_with_one_name_are_told(zoo):
    zoo.append(announce("command_groups", noun=COMMAND_GROUP, name="works", distribution="circus"))
    result = call("works", "feed")
    assert result.exit_code == 1
    assert "zoo 1.2 and circus 1.2" in result.stderr


def test_the_list_of_plugins_has_them():
    listed = json.loads(call("plugins", "list", "--json").stdout)
    assert {commands["name"] for commands in listed["commands"]} == {"works", "absent", "no_app"}
    assert {plugin["name"] for plugin in listed["quarantined"]} == {"no_reference", "serve"}


def test_they_have_no_settings_to_describe():
    result = call("plugins", "describe", "command_group.works")
    assert result.exit_code == 1
    assert result.stderr == "command_group.works is commands, without settings: see `diskless works --help`\n"


def test_only_what_is_allowed_is_found(monkeypatch):
    monkeypatch.setenv("DISKLESS_LOAD_PLUGINS", f"{COMMAND_GROUP}.works")
    assert call("works", "feed").exit_code == 0
    assert call("no_app", "feed").exit_code == 2
