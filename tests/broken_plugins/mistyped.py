"""Backends and commands whose descriptors have values of the wrong type: no type checker looked at them."""

from __future__ import annotations

from dataclasses import replace

from diskless_core.plugin.command_groups import CommandGroup
from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy

BACKENDS = {
    "no_help": {"help": None},
    "one_ability": {"capabilities": "survives_kill"},
    "abilities_unnamed": {"capabilities": {1}},
    "place": {"place_apart": "beside"},
    "settings_made": {"settings": healthy.HealthySettings()},
    "several": {"api_version": 1, "help": b"Lives in a zoo."},
}
COMMANDS = {"no_app": {"app": None}, "number": {"api_version": 1.0}}


@hookimpl
def diskless_offset_assignments():
    (descriptor,) = healthy.diskless_offset_assignments()
    return [replace(descriptor, name=name, **wrong) for name, wrong in BACKENDS.items()]


@hookimpl
def diskless_command_groups():
    right = CommandGroup(name="", app="tests.broken_plugins.command_groups:app", api_version="1.0", help="Of the zoo.")
    return [replace(right, name=name, **wrong) for name, wrong in COMMANDS.items()]
