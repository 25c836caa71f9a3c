"""The commands of docs/plugins/command_group.md, called."""

import sys

from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.plugin_host.manager import PluginManager
from tests.unit.plugin.documented import announced, example


def test_the_documented_commands_can_be_called(monkeypatch, tmp_path):
    module = example("command_group")
    monkeypatch.setitem(sys.modules, "diskless_herons.commands", module)
    discover = PluginManager.discover
    monkeypatch.setattr(PluginManager, "discover", lambda environ: _with_herons(discover(environ)))

    assert CliRunner().invoke(main, ["herons", "feed"]).stdout == "fed\n"
    counted = CliRunner().invoke(main, ["herons", "count", "-o", f"log.dirs={tmp_path}"])
    assert counted.stdout == f"sqlite keeps them in {tmp_path / 'coordinator_store' / 'sqlite'}\n"


def _with_herons(manager: PluginManager) -> PluginManager:
    entry_point = announced("command_group")
    manager._announced[entry_point.noun, entry_point.name].append(entry_point)
    return manager
