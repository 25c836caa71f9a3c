"""The command `diskless` as a whole."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from diskless_core.cli.main import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_loaded_and_has_a_help_text(name):
    assert isinstance(importlib.import_module(COMMANDS[name]).app, typer.Typer)

    result = CliRunner().invoke(main, [name, "--help"])

    assert result.exit_code == 0


def test_the_help_lists_every_command():
    listed = CliRunner().invoke(main, ["--help"]).stdout

    for name in COMMANDS:
        assert name in listed


def test_what_can_be_given_many_times_is_shown_with_dots_once():
    shown = CliRunner().invoke(main, ["topics", "create", "--help"], prog_name="diskless").stdout
    assert "diskless topics create [OPTIONS] {TOPIC}... " in shown


def test_an_unknown_command_is_a_usage_error():
    assert CliRunner().invoke(main, ["sevre"]).exit_code == 2


def test_the_version_can_be_asked_for():
    result = CliRunner().invoke(main, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("diskless ")


def test_completion_can_be_installed_for_the_shell(monkeypatch):
    # otherwise the shell is looked for among the processes above this one
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    script = CliRunner().invoke(main, ["--show-completion", "bash"], prog_name="diskless").stdout

    assert "complete -o default -F _diskless_completion diskless" in script


def test_a_command_does_not_import_the_others():
    program = (
        "import sys; from diskless_core.cli.main import main; main(['plugins', '--help'], standalone_mode=False);"
        "print('imported:', 'diskless_core.cli.serve' in sys.modules, 'diskless_core.broker.server' in sys.modules,"
        "'confluent_kafka' in sys.modules)"
    )

    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "imported: False False False" in finished.stdout
