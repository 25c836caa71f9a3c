"""Each package of contrib/ as its users get it: built, installed into a fresh environment, and tested there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.environments import PROJECT, run, site_packages

FOLDERS = sorted(path.parent for path in (PROJECT / "contrib").glob("*/pyproject.toml"))
FEWEST_TESTS = 20
"""That a package's tests were found at all: its contract suite alone has more."""

FILES_ELSEWHERE = ("syncs no files of its own", "no folder is known in which this storage keeps all")
"""Why a suite skips power cuts for what keeps all in a service. Whatever else a backend can do has to be tested."""

_TESTS_LIMIT_S = 1500
"""The longest take a minute or two, and ten times that on a machine that has much else to do."""
_UNWANTED = shutil.ignore_patterns(".*", "__pycache__", "dist", "node_modules")
_FIND = """
import importlib, json, sys
from importlib.metadata import distribution
[name, *packages] = sys.argv[1:]
files = [importlib.import_module(package).__file__ for package in packages]
print(json.dumps([str(distribution(name).locate_file("")), *files]))
"""

pytestmark = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def project_of(folder: Path) -> tuple[str, list[str]]:
    """The name of a distribution, and its packages."""
    declared = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    return declared["project"]["name"], declared["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def build_wheel(folder: Path, into: Path) -> Path:
    """Build from a copy, with the project's own hatchling and without a network."""
    copy = shutil.copytree(folder, into / "source", ignore=_UNWANTED)
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", into / "wheel"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = (into / "wheel").glob("*.whl")
    return wheel


def install(wheel: Path, into: Path) -> Path:
    """A fresh environment with the wheel, and the interpreter of it.

    What the package needs comes from the environment that runs the tests, which is searched after the fresh one: so the
    wheel is found before an installation of the same package there.
    """
    venv.create(into / "venv", symlinks=True, with_pip=False)
    python = into / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, wheel)
    linked = site_packages(python) / "project.pth"
    linked.write_text(f"import site; site.addsitedir({str(site_packages(Path(sys.executable)))!r})\n", encoding="utf-8")
    return python


def is_left_out(case: ElementTree.Element) -> bool:
    """Whether a test was skipped that the backend could have had."""
    skipped = case.find("skipped")
    return skipped is not None and not any(reason in skipped.get("message", "") for reason in FILES_ELSEWHERE)


@pytest.mark.timeout(_TESTS_LIMIT_S + 300)
def test_a_package_passes_its_tests_as_a_built_wheel(folder: Path, tmp_path: Path) -> None:
    distribution, packages = project_of(folder)
    python = install(build_wheel(folder, tmp_path), tmp_path)
    found = json.loads(run(python, "-I", "-c", _FIND, distribution, *packages))
    assert [path for path in found if not Path(path).is_relative_to(tmp_path / "venv")] == []

    alone = tmp_path / "alone"
    shutil.copytree(folder / "tests", alone / "tests", ignore=_UNWANTED)
    shutil.copy(folder / "pyproject.toml", alone)
    report = tmp_path / "report.xml"
    tested = subprocess.run(
        # -I: neither the working directory nor PYTHONPATH brings the sources
        [python, "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", report],
        cwd=alone,
        capture_output=True,
        text=True,
        timeout=_TESTS_LIMIT_S,
    )

    assert tested.returncode == 0, tested.stdout[-20_000:] + tested.stderr[-5_000:]
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert [case.get("name") for case in cases if is_left_out(case)] == []
    assert len(cases) >= FEWEST_TESTS


def test_a_wheel_has_its_packages_with_their_types_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    _, packages = project_of(folder)
    listed = run(sys.executable, "-m", "zipfile", "--list", build_wheel(folder, tmp_path))
    names = [line.split()[0] for line in listed.splitlines()[1:]]

    assert {f"{package}/py.typed" for package in packages} <= set(names)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(packages)


def test_a_package_says_which_versions_of_diskless_it_fits(folder: Path) -> None:
    declared = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert "diskless>=0.1,<1" in declared["dependencies"]
    assert declared["license"] == "Apache-2.0"
    assert set(declared["entry-points"]) == {"diskless.plugins"}
    assert (folder / declared["readme"]).is_file()
