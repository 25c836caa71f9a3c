"""Who may import whom: the contracts of pyproject.toml, and what pure modules stay away from."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.architecture.source_files import ROOT, imported_modules, python_files, read
from tests.support.broker import BrokerProcess

PURE = re.compile(r"\b[Pp]ure\b|No I/O, no clock")
"""What a module says of itself that is held to it; a package says it for all of its modules."""

WORLD = (
    "asyncio",
    "concurrent",
    "diskless_core.clock",
    "http",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
    "time",
    "urllib",
)
"""What gives a module time, chance, waiting or the outside."""

CLIENTS = (
    "aiobotocore",
    "confluent_kafka",
    "fsspec",
    "gcsfs",
    "httpx",
    "kafka.KafkaAdminClient",
    "kafka.KafkaConsumer",
    "kafka.KafkaProducer",
    "kafka.admin",
    "kafka.consumer",
    "kafka.producer",
    "prometheus_client",
    "pyspark.sql.SparkSession",
    "s3fs",
    "tenacity",
    "uvicorn",
)
"""Libraries that reach for it."""

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
    """All modules that say that they are pure, or whose package says so."""
    modules = python_files("contrib", "diskless_core", "plugins", "spark")
    saying = {path for path in modules if PURE.search(ast.get_docstring(ast.parse(read(path))) or "")}
    packages = {path.parent for path in saying if path.name == "__init__.py"}
    return [path for path in modules if path in saying or packages.intersection(path.parents)]


def names_in(path: Path, modules: Iterable[str]) -> set[str]:
    """What a module imports of some modules."""
    prefixes = tuple(f"{name}." for name in modules)
    return {name for name in imported_modules(path) if f"{name}.".startswith(prefixes)}


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
    plugins |= {path.parts[2] for path in python_files("contrib") if path.parts[2].startswith("diskless_")}

    assert {name.split(".")[1] for one in off_limits for name in one["forbidden_modules"]} == core - set(AUTHOR_API)
    assert [set(one["source_modules"]) for one in off_limits] == [plugins, plugins]


def test_modules_that_say_they_are_pure_know_no_event_loop_no_time_no_chance_and_no_client() -> None:
    pure = pure_modules()
    found = {str(path): names_in(path, (*WORLD, *CLIENTS)) for path in pure}

    assert {path: names for path, names in found.items() if names} == {}
    assert len(pure) > 100


@pytest.mark.parametrize("package", ["log", "protocol", "remote_log", "wal"])
def test_the_packages_of_formats_are_pure(package: str) -> None:
    assert set(python_files("diskless_core")).intersection(pure_modules()) >= {
        path for path in python_files("diskless_core") if path.parts[1] == package
    }


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
    heavy = ("aiobotocore", "confluent_kafka", "gcsfs", "s3fs", "sqlite3", "fsspec")
    code = f"import sys, {', '.join(f'{plugin}.plugin' for plugin in PLUGINS)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not set(heavy) & set(loaded)


def test_serve_imports_no_more_third_party_packages_than_it_needs() -> None:
    """Imports are most of a broker's start. A package that only some brokers or commands need is imported by these."""
    code = "import sys, diskless_core.cli.serve; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    packages = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert {name for name in packages if not name.startswith(("_cython", "_sysconfigdata"))} <= {
        "__main__",
        "diskless_core",
        # the broker's own
        *("crc32c", "cramjam", "javaproperties", "kafka", "lz4", "msgpack", "pluggy", "prometheus_client", "pydantic"),
        *("snappy", "structlog", "tenacity", "typer", "uvloop", "zstandard"),
        # what these import, if it is there
        *("_distutils_hack", "annotated_doc", "annotated_types", "attr", "colorama", "cython_runtime"),
        *("greenlet", "pydantic_core", "pygments", "rich", "shellingham", "typing_extensions", "typing_inspection"),
    }


def test_a_broker_loads_no_libraries_that_it_does_not_use(broker: BrokerProcess) -> None:
    """Those for tables of data double the time of its start, and librdkafka adds a tenth of a second to it."""
    loaded = Path(f"/proc/{broker.pid}/maps").read_text()

    assert "pydantic" in loaded
    assert not [name for name in ("/confluent_kafka/", "/numpy/", "/pandas/", "/pyarrow/") if name in loaded]
