"""What `diskless plugins new` writes, as a stranger has it: a wheel, in a fresh environment, that passes and serves."""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from diskless_core.cli.scaffold.kinds import KINDS
from diskless_core.cli.scaffold.project import Project, render
from diskless_core.cli.scaffold.writing import write_project
from diskless_core.plugin.command_groups import COMMAND_GROUP
from diskless_core.plugin_host.nouns import NOUNS
from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.environments import PROJECT, environment_with, run, site_packages
from tests.support.requests import append, create_topic, fetch

NAMES = {noun: f"new_{noun}" for noun in KINDS}
UNCLAIMED = re.compile(
    r"this log has one node|the backend of this log cannot be made to hang|does not claim to write on condition"
    r"|the place of this store cannot be made to hang|does not claim to be shared by several nodes|it makes no store"
    r"|can't be read beside the broker"
)
"""Why the suites skip tests: what a new project begins with, on one node's disk, does not claim these abilities."""

FEWEST_PASSED = 2
VALUES = [b"value %d" % number for number in range(20)]

pytestmark = pytest.mark.xdist_group("scaffold")


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("projects")
    for noun, name in NAMES.items():
        run(Path(sys.executable).with_name("diskless"), "plugins", "new", noun, name, "--folder", folder)
    return {noun: folder / f"diskless-{name.replace('_', '-')}" for noun, name in NAMES.items()}


@pytest.fixture(scope="module")
def python(projects: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheels of Diskless and of all projects."""
    folder = tmp_path_factory.mktemp("scaffold")
    python = environment_with(folder, [PROJECT])
    (site_packages(python) / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    for project in projects.values():
        built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "made")]
        subprocess.run(built, cwd=project, check=True, capture_output=True, timeout=300)
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(*install, *(folder / "made").iterdir())
    return python


def test_every_noun_can_be_begun() -> None:
    assert list(KINDS) == [*NOUNS, COMMAND_GROUP]


def test_what_is_written_is_typed_and_tidy(projects: dict[str, Path]) -> None:
    folder = next(iter(projects.values())).parent
    tools = Path(sys.executable).parent
    run(tools / "ruff", "format", "--check", "--no-cache", folder)
    # names of a letter, and as long as they may be, make other lines
    for noun in KINDS:
        for name in ("x", "a" * 30):
            write_project(folder / f"{noun}-{name}", render(Project(noun=noun, name=name)))
    run(tools / "ruff", "check", "--no-cache", folder)
    packages = [f"diskless_{name}" for name in NAMES.values()]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, [*projects.values(), PROJECT]))}
    options = ["--config-file", str(projects["wal_object_store"] / "pyproject.toml"), "--no-incremental"]
    checked = subprocess.run(
        [tools / "mypy", *options, *(part for package in packages for part in ("-p", package))],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_authors_get_the_types_of_diskless(python: Path) -> None:
    assert (site_packages(python) / "diskless_core" / "py.typed").exists()


def test_all_are_listed(python: Path) -> None:
    listed = json.loads(run(python.with_name("diskless"), "plugins", "list", "--json"))

    found = {(plugin["noun"], plugin["name"]) for plugin in listed["plugins"]}
    assert found >= {(noun, NAMES[noun]) for noun in NOUNS}
    assert NAMES[COMMAND_GROUP] in {commands["name"] for commands in listed["commands"]}
    assert not [plugin for plugin in listed["quarantined"] if plugin["name"] in NAMES.values()]


@pytest.mark.parametrize("noun", KINDS)
def test_the_tests_of_a_new_project_pass(
    noun: str, python: Path, projects: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    project = projects[noun]
    (project / f"diskless_{NAMES[noun]}").rename(project / "sources")  # the wheel's is meant
    options = ["-q", "-rs", "-p", "no:cacheprovider", f"--rootdir={project}", "--import-mode=importlib"]
    report = run(python, "-m", "pytest", *options, "-c", project / "pyproject.toml", project / "tests")
    (project / "sources").rename(project / f"diskless_{NAMES[noun]}")

    passed = re.search(r"(\d+) passed", report)
    assert passed is not None, report
    assert int(passed[1]) >= FEWEST_PASSED, report
    assert [line for line in report.splitlines() if line.startswith("SKIPPED") and not UNCLAIMED.search(line)] == []


def test_a_broker_runs_on_all_of_them(
    python: Path, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    settings = {
        **{noun: NAMES[noun] for noun in NOUNS},
        "admin.listener": "http://127.0.0.1:0",
        "diskless.fetch.cache.max.bytes": "0",
        "diskless.file.delete.delay.ms": "0",
        "log.retention.check.interval.ms": "100",
        "remote.log.storage.system.enable": "true",
    }
    broker = BrokerProcess(tmp_path, settings, python=python)
    diskless = python.with_name("diskless")
    try:
        broker.start()
        with broker.connect() as wire:
            create_topic(wire, topic)
            append(wire, topic, *(batch_of(value) for value in VALUES))
        broker.kill()
        broker.start()
        with broker.connect() as wire:
            assert read_values(fetch(wire, topic, 0).records) == VALUES
        report = json.loads(run(diskless, "compact", "--topic", topic, "--everything", "--json", "--url", broker.admin))
        segments = httpx.get(f"{broker.admin}/remote-log", timeout=300).raise_for_status().json()
        run(diskless, "orphans", "scan", "--dry-run", "--url", broker.admin)
        broker.restart()
        with broker.connect() as wire:
            assert read_values(fetch(wire, topic, 0).records) == VALUES
        broker.stop()
    finally:
        broker.end()

    assert segments, report
    data = tmp_path / "data"
    for noun in ("coordinator_log", "coordinator_store", "wal_object_store", "remote_storage", "remote_log_metadata"):
        assert any(path.is_file() for path in (data / noun / NAMES[noun]).rglob("*")), noun
