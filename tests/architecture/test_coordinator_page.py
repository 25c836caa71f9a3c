"""The page on the coordinator names modules that exist, and those say which section of the KIP they implement."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_files import ROOT, python_files, read

PAGE = Path("docs") / "coordinator.md"
CORE = Path("diskless_core")
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", read(PAGE).partition("\n## Section by section\n")[2], re.M)


def modules() -> Iterator[Path]:
    """All modules of the table. A name without a folder is in the folder of the one before it."""
    for _, cell in ROWS[2:]:
        folder = Path()
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", cell):
            if "/" in name:
                folder = Path(name).parent if name.endswith(".py") else Path(name)
            if name.endswith(".py"):
                yield CORE / folder / Path(name).name


NAMED = list(modules())


def test_the_table_has_modules() -> None:
    assert len(NAMED) > 30
    assert len(set(NAMED)) == len(NAMED)


@pytest.mark.parametrize("module", NAMED, ids=str)
def test_a_module_of_the_table_names_the_section_that_it_implements(module: Path) -> None:
    assert (ROOT / module).exists()
    assert "KIP-1164" in (ast.get_docstring(ast.parse(read(module))) or "")


def test_modules_name_sections_that_there_are() -> None:
    sections = {name for name, _ in ROWS}
    named = {
        (str(path), section)
        for path in python_files("diskless_core", "plugins")
        for section in re.findall(r'KIP-1164, "([^"]+)"', " ".join(read(path).split()))
        if not section.startswith("Diskless") or " " in section  # the APIs have sections of their own
    }

    assert {one for one in named if one[1] not in sections} == set()
