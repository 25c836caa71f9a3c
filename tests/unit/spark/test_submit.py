"""What spark-submit is given."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from diskless_spark import submit


def test_without_spark_submit_it_says_how_it_is_run():
    done = subprocess.run([sys.executable, "-m", "diskless_spark.submit"], capture_output=True, text=True, check=True)
    program = done.stdout.split()[3]
    assert done.stdout.startswith("spark-submit --master MASTER ")
    assert Path(program) == Path(submit.__file__).resolve()


def test_it_runs_the_command_with_the_engine_and_what_stands_behind_it(monkeypatch: pytest.MonkeyPatch):
    ran: list[list[str]] = []

    class Command(EntryPoint):
        def load(self):
            return lambda: ran.append([*sys.argv])

    def installed(*, group: str, name: str) -> list[EntryPoint]:
        assert (group, name) == ("console_scripts", "diskless")
        return [Command(name, "x:y", group)]

    folder = str(Path(submit.__file__).parent)
    monkeypatch.setenv(submit.GATEWAY_VARIABLE, "1")
    monkeypatch.setattr(submit, "entry_points", installed)
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    monkeypatch.setattr(sys, "argv", ["submit.py", "--all", "--json"])
    submit.main()
    assert ran == [["diskless", "compact", "--here", "--engine", "spark", "--all", "--json"]]
    assert folder not in sys.path, "the modules beside it would hide others of the same names"
