"""The documents fit the code that they speak of."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from diskless_core.cli import decisions, docs
from diskless_core.plugin_host.nouns import NOUNS
from docs_site import drawn_files
from tests.architecture.source_files import ROOT, project_files, read

PAGES = [path for path in project_files() if path.suffix == ".md"]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
TARGET = re.compile(r"^([a-z-]+):", re.M)


def test_every_link_between_documents_leads_somewhere():
    links = [(path, link) for path in PAGES for link in LINK.findall(read(path))]

    assert [f"{path}: {link}" for path, link in links if not (ROOT / path.parent / link).exists()] == []


def test_every_make_target_that_a_document_names_exists():
    named = {target for path in PAGES for target in re.findall(r"\bmake ([a-z-]+)\s*(?:$|#|`)", read(path), re.M)}

    assert "demo" in named
    assert named <= set(TARGET.findall(read(Path("Makefile"))))


def test_the_page_on_architecture_shows_the_layers_that_are_enforced():
    contracts = tomllib.loads(read(Path("pyproject.toml")))["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    drawn = re.findall(
        r"^```text\n(.*?)^```", read(Path("docs/architecture.md")).partition("\n## Packages\n")[2], re.M | re.S
    )

    assert [line.split("  ")[0] for line in drawn[0].splitlines()] == layers


@pytest.mark.parametrize("page", docs.PAGES)
def test_a_generated_page_is_what_the_code_renders(page):
    assert read(Path("docs") / page) == docs.PAGES[page]()


@pytest.mark.parametrize(("page", "section"), docs.SECTIONS)
def test_a_generated_section_is_what_the_code_renders(page, section):
    text = read(Path(page))

    assert text == docs.with_section(text, section, docs.SECTIONS[page, section](ROOT / "docs"))


def test_what_is_drawn_is_what_the_figures_and_the_code_say():
    assert drawn_files.stale(ROOT / "docs") == [], "draw it anew with `make docs`"


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_has_a_page(noun):
    assert (ROOT / "docs" / "plugins" / f"{noun}.md").exists()


@pytest.mark.parametrize("noun", NOUNS.values(), ids=NOUNS)
def test_every_noun_has_a_contract_suite_that_its_backends_are_held_to(noun):
    suite = f"{noun.interface.__name__}Contract"

    assert hasattr(importlib.import_module(f"diskless_core.testing.{noun.name}"), suite)
    assert suite in read(Path(f"tests/contract/test_{noun.name}.py"))


def test_decision_records_are_numbered_without_gaps_and_have_the_usual_parts():
    records = sorted(path for path in PAGES if path.parent == Path("docs/adr") and path.name != "README.md")

    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    listed = [decision.file for decision in decisions.read_decisions(ROOT / "docs/adr")]
    assert listed == [path.name for path in records]
    for path in records:
        assert re.findall(r"^## (.+)$", read(path), re.M) == ["Context", "Decision", "Consequences"]
