"""Who may import whom: the contracts of pyproject.toml, and what pure modules stay away from."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.architecture.source_files import ROOT, imported_modules, python_files
from tests.support.broker import BrokerProcess

PURE_PACKAGES = (
    "diskless_core/layout",
    "diskless_core/log",
    "diskless_core/protocol",
    "diskless_core/remote_log",
    "diskless_core/shards.py",
    "diskless_core/wal",
)
PURE_MODULES = {
    "diskless_core/coordinator": (
        "commands",
        "entries",
        "machine",
        "operations",
        "producer_state",
        "records",
        "runs",
        "state",
        "tables",
        "tiering_operations",
    ),
    "diskless_core/cluster": (
        "broker_configs",
        "config_changes",
        "config_layers",
        "config_model",
        "gateway_plan",
        "machine",
        "operations",
        "quota_changes",
        "quota_filters",
        "records",
        "topic_configs",
    ),
    "diskless_core/fetch": ("planner",),
    "diskless_core/groups": ("classic", "cycle", "effects", "machine", "model", "offsets", "roster"),
    "diskless_core/produce": ("active_file", "validation"),
    "diskless_core/tiering": ("leftovers", "planning"),
    "diskless_core/plugin": ("shard",),
    "diskless_core/plugin_host": ("checking",),
    "diskless_core/snapshot": ("format", "known_objects"),
    "diskless_core/quotas": ("entities", "limits", "rate"),
}
WORLD = (
    "asyncio",
    "datetime",
    "diskless_core.clock",
    "os",
    "random",
    "select",
    "selectors",
    "socket",
    "threading",
    "time",
)
"""What gives a module time, chance, waiting or the outside."""

PLUGINS = (
    "diskless_fsspec",
    "diskless_kafka",
    "diskless_local_log",
    "diskless_policies",
    "diskless_sqlite",
    "diskless_tiering",
)
AUTHOR_API = ("plugin", "layout", "snapshot", "log", "protocol", "remote_log", "wal", "clock", "pages")
"""Parts of the core that a plugin may import; of `clock` only what a `PluginContext` hands out."""

HOSTS = (Path("spark/diskless_spark/source/connection.py"),)
"""Modules that come with a plugin, and make backends from settings by themselves."""


def pure_modules() -> list[Path]:
    packages = [path for path in python_files("diskless_core") if str(path).startswith(PURE_PACKAGES)]
    return packages + [Path(folder) / f"{name}.py" for folder, names in PURE_MODULES.items() for name in names]


def test_the_import_contracts_hold():
    lint = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )

    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_the_import_contracts_cover_every_package():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contracts = {contract["id"]: contract for contract in config["contracts"]}
    off_limits = [contracts["plugins-on-the-author-api"], contracts["plugins-know-no-kinds-of-shards"]]
    core = {path.parts[1].removesuffix(".py") for path in python_files("diskless_core")} - {"__init__"}
    plugins = {path.parts[1] for path in python_files("plugins", "spark") if path.parts[1].startswith("diskless_")}

    assert {name.split(".")[1] for one in off_limits for name in one["forbidden_modules"]} == core - set(AUTHOR_API)
    assert [set(one["source_modules"]) for one in off_limits] == [plugins, plugins]


def test_pure_modules_know_no_event_loop_no_time_and_no_chance():
    found = {str(path): imported_modules(path).intersection(WORLD) for path in pure_modules()}

    assert {path: names for path, names in found.items() if names} == {}


def test_plugins_import_only_the_author_api_of_the_core():
    imported = {
        name.split(".")[1]
        for path in python_files("plugins", "spark")
        for name in imported_modules(path)
        if name.startswith("diskless_core.") and not (path in HOSTS and name.startswith("diskless_core.plugin_host"))
    }

    assert imported <= set(AUTHOR_API)


def test_a_plugin_module_that_serve_must_import_stays_light():
    """Settings and hooks are read at every start: the backend itself is imported by the factory."""
    heavy = ("aiobotocore", "gcsfs", "s3fs", "sqlite3", "fsspec")
    code = f"import sys, {', '.join(f'{plugin}.plugin' for plugin in PLUGINS)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not set(heavy) & set(loaded)


def test_a_broker_loads_no_libraries_for_tables_of_data(broker: BrokerProcess) -> None:
    """They double the time of its start wherever they happen to be installed."""
    loaded = Path(f"/proc/{broker.pid}/maps").read_text()

    assert "pydantic" in loaded
    assert not [name for name in ("/numpy/", "/pandas/", "/pyarrow/") if name in loaded]
