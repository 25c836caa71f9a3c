"""Rules that a reader of this code may rely on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from diskless_core.metrics import Metrics
from diskless_core.plugin_host.health_metrics import DECLARATIONS
from tests.architecture.source_files import project_files, python_files, read

MODULES = python_files("contrib", "diskless_core", "docs_site", "plugins", "tests")
SHIPPED = python_files("contrib", "diskless_core", "plugins")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|work|Users)/[\w.]")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def test_every_module_says_what_it_holds():
    assert [str(path) for path in MODULES if read(path).strip() and not ast.get_docstring(ast.parse(read(path)))] == []


def test_nothing_is_left_unfinished():
    assert [str(path) for path in SHIPPED if UNFINISHED.search(read(path))] == []


def test_no_file_names_a_path_of_somebodys_machine():
    found = [f"{path}: {match[0]}" for path in project_files() for match in MACHINE_PATH.finditer(read(path))]

    assert found == []


def test_no_file_names_a_registry_or_an_index():
    locks = [Path("constraints.txt"), Path("pyproject.toml")]

    assert not [
        path for path in locks if "--index" in read(path) or re.search(r"^[^#]*@ *(?:file|https?):", read(path), re.M)
    ]


def test_every_metric_is_moved_by_some_code():
    code = "\n".join(read(path) for path in SHIPPED if path.name != "metrics.py")
    metrics = Metrics()
    watched = {declared.name for declared in DECLARATIONS} | set(
        re.findall(r"self\.(\w+)(?:\.labels\(name\))?\.set_function", read(Path("diskless_core/metrics.py")))
    )
    names = {description.name.removeprefix("diskless_").removesuffix("_total") for description in metrics.descriptions}

    assert {name for name in names - watched if f"metrics.{name}" not in code} == set()
    assert "watch_shard" in code
    assert "watch_producers" in code
    assert "watch_brokers" in code
    assert "watch_plugins" in code
