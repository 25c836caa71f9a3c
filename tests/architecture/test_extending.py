"""The page on extending does what it says: in a copy of the project, changed by the page's own code blocks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.source_files import ROOT, project_files, read

PAGE = Path("docs/extending.md")
BLOCK = re.compile(r"^`([^`]+)`:\n\n```(\w+)\n(.*?)^```$", re.M | re.S)
PATH = re.compile(r"`((?:diskless_core|docs|plugins|tests)/[\w./-]*|pyproject\.toml)`")
COPIED = ("contrib", "diskless_core", "docs", "docs_site", "plugins", "spark", "tests")
OUTSIDE = ("tests/architecture/test_extending.py",)
"""What would copy the copy."""

pytestmark = pytest.mark.xdist_group("extending")


class Block(NamedTuple):
    """What the page puts into a file."""

    path: Path
    language: str
    text: str


BLOCKS = [Block(Path(path), language, text) for path, language, text in BLOCK.findall(read(PAGE))]


def changed(content: str, diff: str) -> str:
    """`content` with the change of a diff whose parts each begin with the lines that they are about."""
    for part in re.split(r"^@@\n", diff, flags=re.M):
        lines = part.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if not line.startswith("+"))
        after = "".join(line[1:] for line in lines if not line.startswith("-"))
        assert content.count(before) == 1, f"not found, or more than once:\n{before}"
        content = content.replace(before, after)
    return content


def announce(project: Path) -> None:
    """Do what installing does for the entry points of pyproject.toml."""
    metadata = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    installed = project / f"{metadata['name']}-{metadata['version']}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {metadata['name']}\nVersion: {metadata['version']}\n"
    )
    lines = [f"{key} = {value}\n" for key, value in metadata["entry-points"]["diskless.plugins"].items()]
    (installed / "entry_points.txt").write_text("".join(["[diskless.plugins]\n", *lines]))


class Copy:
    """A copy of the project that has grown by what the page adds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in project_files():
            if (path.parts[0] in COPIED or len(path.parts) == 1) and str(path) not in OUTSIDE:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, folder / path)
        for block in BLOCKS:
            file = folder / block.path
            if block.language == "diff":
                file.write_text(changed(file.read_text(), block.text))
            else:
                file.parent.mkdir(exist_ok=True)
                with file.open("x") as new:
                    new.write(block.text)
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
        announce(folder)
        self.python("-m", "diskless_core.cli.docs").check_returncode()

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python on the code of the copy."""
        paths = os.pathsep.join(str(self.folder / name) for name in ("", "plugins", "spark"))
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )

    def test(self, *arguments: str) -> tuple[set[str], str]:
        """Run tests of the copy; return which failed, and the whole output."""
        ran = self.python("-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", *arguments)
        assert ran.returncode in (0, 1), ran.stdout + ran.stderr
        return set(re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", ran.stdout, re.M)), ran.stdout

    def read(self, path: str) -> str:
        """A file of the copy."""
        return (self.folder / path).read_text()


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    folder = tmp_path_factory.mktemp("extending") / "diskless"
    yield Copy(folder)
    shutil.rmtree(folder)


def test_every_path_on_the_page_exists() -> None:
    added = {str(block.path) for block in BLOCKS if block.language != "diff"}
    named = set(PATH.findall(read(PAGE))) - added

    assert len(named) > 20
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_the_page_adds_an_api_a_noun_and_a_kind_of_shard() -> None:
    assert {block.path.parts[1] for block in BLOCKS if block.path.parts[0] == "diskless_core"} >= {
        "audit",
        "broker",
        "plugin",
        "plugin_host",
        "shards.py",
    }


def test_what_the_page_adds_works_like_what_is_there(grown: Copy) -> None:
    failed, output = grown.test("tests/architecture/grown.py")

    assert failed == set(), output


def test_an_api_is_on_the_page_of_the_protocol(grown: Copy) -> None:
    assert "| GetTelemetrySubscriptions | 71 | 0 | 0 |" in grown.read("docs/protocol_support.md")


def test_a_noun_is_on_the_pages_that_list_nouns(grown: Copy) -> None:
    assert "#### `price_list.flat.per.request`\n" in grown.read("docs/configuration.md")
    assert "`flat`: The same price for every request" in grown.read("README.md")
    assert "- price_list: plugins/price_list.md" in grown.read("mkdocs.yml")
    assert "- [price_list](plugins/price_list.md)" in grown.read("docs/index.md")


def test_a_kind_of_shard_is_on_the_pages_of_records_and_settings(grown: Copy) -> None:
    assert "\n## Audit shards\n\n### 190 AuditNotedRecord\n\nSomebody did something.\n" in grown.read("docs/records.md")
    settings = grown.read("docs/configuration.md")
    entry = settings.partition("#### `diskless.audit.topic.num.partitions`\n")[2].partition("\n#")[0]
    assert "\n*Type:* int · *Default:* `1` ·" in entry
    assert "Others are called cluster-0 and groups-N and audit-N;" in settings


def test_the_tests_that_the_page_names_find_nothing_but_the_page_and_the_suite_of_the_noun(grown: Copy) -> None:
    failed, output = grown.test(
        "tests/architecture/test_documents.py",
        "tests/architecture/test_import_rules.py",
        "tests/architecture/test_shard_kinds.py",
        "tests/unit/broker/test_apis.py",
        "tests/unit/cli/test_record_reference.py",
        "tests/unit/plugin/test_documentation.py",
        "--deselect=tests/architecture/test_import_rules.py::test_a_broker_loads_no_libraries_for_tables_of_data",
    )

    expected = {
        "test_there_is_a_page_for_each_noun_and_for_nothing_else",
        "test_every_link_between_documents_leads_somewhere",
        "test_every_noun_has_a_page[price_list]",
        "test_every_noun_has_a_contract_suite_that_its_backends_are_held_to[price_list]",
        "test_a_page_shows_the_hook_with_its_exact_signature[price_list]",
        "test_a_page_names_every_method_that_an_author_has_to_write[price_list]",
        "test_the_example_of_a_page_is_a_plugin_that_can_be_loaded_and_made[price_list]",
    }
    assert failed == expected, output
