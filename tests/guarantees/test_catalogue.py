"""The page of guarantees is what the tests say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.source_files import ROOT, read
from tests.support.guarantees import PAGE, SECTIONS, guarantee, named_guarantees, render

FOLDER = Path("tests") / "guarantees"
NAMED = list(named_guarantees(ROOT))


def test_the_page_is_what_the_tests_say() -> None:
    assert read(PAGE) == render(NAMED), "run `make docs`"


def test_every_section_has_guarantees_and_each_is_a_sentence() -> None:
    assert {named.section for named in NAMED} == set(SECTIONS)
    assert [named for named in NAMED if not named.sentence.endswith(".") or "|" in named.sentence] == []


def test_every_test_of_this_folder_names_what_it_guarantees() -> None:
    naming = {named.test for named in NAMED}
    tests = {
        f"{path.relative_to(ROOT).as_posix()}::{function.name}"
        for path in (ROOT / FOLDER).glob("test_*.py")
        if path.name != Path(__file__).name
        for function in ast.parse(read(path)).body
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test_")
    }

    assert len(tests) > 50
    assert tests - naming == set()


def test_markers_are_found_in_the_source_of_tests(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text(
        "@other('Reads', 'Not this.')\n"
        "@guarantee('Reads', 'It is ' 'read.')\n"
        "@guarantee('Offsets', 'It | is.')\n"
        "async def test_it() -> None: ...\n"
        "def test_nothing() -> None: ...\n"
    )

    found = [tuple(named) for named in named_guarantees(tmp_path)]

    test = "tests/unit/test_one.py::test_it"
    assert found == [("Reads", "It is read.", test), ("Offsets", "It | is.", test)]


def test_a_section_that_is_not_on_the_page_is_an_error() -> None:
    with pytest.raises(ValueError, match="Offests"):
        guarantee("Offests", "A slip of the pen.")
