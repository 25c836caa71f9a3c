"""Each noun has a page that names its hook and its interface as they are, with an example that works."""

from __future__ import annotations

import inspect
from itertools import pairwise
from pathlib import Path

import javaproperties
import pytest

from diskless_core.clock import SystemClock
from diskless_core.config.load import load_config
from diskless_core.plugin.command_groups import COMMAND_GROUP
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import NOUNS, OFFSET_ASSIGNMENT
from tests.broken_plugins.stand_ins import announce_stand_ins
from tests.unit.plugin.documented import PAGES, announced, blocks, page


def signature(noun):
    """A hook's first line as an author writes it."""
    return f"def {noun.hook}{inspect.signature(noun.spec)}:".replace("'", "")


@pytest.mark.parametrize("noun", NOUNS.values(), ids=NOUNS)
def test_a_page_shows_the_hook_with_its_exact_signature(noun):
    text = page(noun.name)

    assert text.startswith(f"# {noun.name}\n")
    assert f"```text\n@hookimpl\n{signature(noun)}\n```" in text
    assert f"\n{signature(noun)}\n    return [\n" in text


@pytest.mark.parametrize("noun", NOUNS.values(), ids=NOUNS)
def test_a_hooks_docstring_shows_an_implementation_with_its_exact_signature(noun):
    docstring = inspect.getdoc(noun.spec)

    assert f"    @hookimpl\n    {signature(noun)}\n" in docstring
    assert f"`{noun.name}=<name>`" in docstring


@pytest.mark.parametrize("noun", NOUNS.values(), ids=NOUNS)
def test_a_page_names_every_method_that_an_author_has_to_write(noun):
    for method in noun.interface.__abstractmethods__:
        assert f"{method}(" in page(noun.name)


@pytest.mark.parametrize(
    ("noun", "types"),
    [
        ("coordinator_store", ["Key = tuple[Value, ...]", "TableSpec", "TableChanges", "ColumnType"]),
        ("gateway_placement", ["Gateways = Mapping[int, Mapping[str | None, frozenset[int]]]", "Coordinator"]),
    ],
)
def test_a_page_describes_the_types_that_an_author_meets(noun, types):
    text = page(noun)

    assert [name for name in types if f"\n#### `{name}`\n" not in text] == []
    assert "`leader_id: int | None = ...`" in page("gateway_placement")


@pytest.mark.parametrize("noun", sorted(path.stem for path in PAGES.glob("*.md")))
def test_no_chapter_of_a_page_is_empty(noun):
    lines = [line for line in page(noun).splitlines() if line]

    followed = [(line, after) for line, after in pairwise(lines) if line.startswith("##")]
    assert [
        line for line, after in followed if after.startswith("## ") or (line[:4], after[:4]) == ("### ", "### ")
    ] == []


@pytest.mark.parametrize("noun", NOUNS.values(), ids=NOUNS)
def test_the_example_of_a_page_is_a_plugin_that_can_be_loaded_and_made(noun, tmp_path):
    entry_point = announced(noun.name)
    manager = PluginManager([*announce_stand_ins(), entry_point])
    assert entry_point.noun == noun.name

    selected = load_config(None, [entry_point.key.replace(".", "=")], {}, manager).plugins

    backend = manager.create(noun, selected, lambda noun, name: context_in(tmp_path))
    assert isinstance(backend, noun.interface)


def test_the_example_of_an_offset_assignment_does_what_its_page_says(tmp_path):
    manager = PluginManager([*announce_stand_ins(), announced("offset_assignment")])
    (properties,) = blocks("offset_assignment", "properties")
    overrides = [f"{key}={value}" for key, value in javaproperties.loads(properties).items()]

    selected = load_config(None, overrides, {}, manager).plugins

    backend = manager.create(OFFSET_ASSIGNMENT, selected, lambda noun, name: context_in(tmp_path))
    assert backend.assign(501, [1, 600, 1]) == [1000, 1500, 2500]


def test_there_is_a_page_for_each_noun_and_for_nothing_else():
    assert {path.stem for path in PAGES.glob("*.md")} == {*NOUNS, COMMAND_GROUP}


def context_in(folder: Path) -> PluginContext:
    return PluginContext(node_id=1, data_dir=folder / "plugin", log_dir=folder, clock=SystemClock())
