"""What every command does with `--config`, `--override` and the environment."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from diskless_core.cli import common
from diskless_core.plugin_host.manager import PluginManager
from tests.broken_plugins.stand_ins import announce_stand_ins

app = typer.Typer(add_completion=False)


@app.command()
def show(config: common.ConfigOption = None, override: common.OverrideOption = None) -> None:
    broker = common.load_or_exit(config, override, PluginManager(announce_stand_ins())).broker
    typer.echo(f"{broker.node_id} {broker.num_partitions} {broker.broker_rack}")


@pytest.fixture
def server_properties(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("node.id=2\nnum.partitions=2\nbroker.rack=a\n", encoding="utf-8")
    return str(path)


def test_without_options_a_command_has_the_defaults():
    assert CliRunner().invoke(app, []).stdout == "1 1 None\n"


def test_the_file_the_environment_and_the_overrides_make_one_configuration(server_properties, monkeypatch):
    monkeypatch.setenv("DISKLESS_CONFIG_NUM_PARTITIONS", "3")
    overrides = ["--override", "node.id=4", "--override", "broker.rack=b"]

    assert CliRunner().invoke(app, ["--config", server_properties, *overrides]).stdout == "4 3 b\n"


def test_a_bad_configuration_ends_the_command_with_every_problem():
    result = CliRunner().invoke(app, ["--override", "node.id=x", "--override", "node.idd=1"])

    assert result.exit_code == 1
    assert result.stdout == ""
    assert [line.split(":")[1].strip() for line in result.stderr.splitlines()] == ["node.idd", "node.id=x"]
