"""What `diskless compact` needs to run an engine itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from diskless_core.cli import backends
from diskless_core.cli.compaction_driver import DriverBackends
from diskless_core.plugin_host.manager import PluginManager


def test_an_engine_gets_its_master_and_plugins_are_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    discovered: list[PluginManager] = []
    discover = backends.discover_plugins
    monkeypatch.setattr(backends, "discover_plugins", lambda: discovered.append(discover()) or discovered[-1])
    made = DriverBackends.for_engine(None, [f"log.dirs={tmp_path}"], engine="spark", master="local[3]")
    assert made.engine_name == "spark"
    assert made._loaded.plugins["segment_compaction"].settings.master == "local[3]"  # type: ignore[attr-defined]
    assert made.config.data_dir == tmp_path
    assert len(discovered) == 1


@pytest.mark.parametrize("engine", ["inline", None])
def test_an_engine_without_a_master_is_told_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str | None
) -> None:
    with pytest.raises(typer.Exit):
        DriverBackends.for_engine(None, [f"log.dirs={tmp_path}"], engine=engine, master="spark://spark:7077")
    assert capsys.readouterr().err.startswith("the engine inline has no --master: give --engine spark")
