"""What `diskless compact` needs to run an engine itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskless_core.cli import backends
from diskless_core.cli.compaction_driver import DriverBackends
from diskless_core.plugin.manager import PluginManager


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
