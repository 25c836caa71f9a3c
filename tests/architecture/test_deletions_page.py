"""The page on deletions has a row for each place in the code that deletes what others could need, and for no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.architecture.source_files import python_files, read

PAGE = Path("docs") / "deletions.md"

DELETING = frozenset(
    {
        "delete",
        "delete_async",
        "delete_below",
        "delete_blob",
        "delete_consumer_groups",
        "delete_files",
        "delete_names",
        "delete_objects",
        "delete_records",
        "delete_topic",
        "delete_topics",
        "ftruncate",
        "prune",
        "remove_attempts",
        "remove_log",
        "remove_older",
        "rm",
        "rm_file",
        "rmdir",
        "rmtree",
        "truncate",
        "unlink",
    }
)
"""What functions and methods are called that delete objects, segments, snapshots, entries, records or files."""

SAYS_WHAT = frozenset({"changes", "found", "plan", "tx", "work"})
"""The names of transactions, which delete rows of a state machine as a record of the log says, and of plans."""

STORES_OF_STATE = ("plugins/diskless_sqlite", "contrib/diskless-rocksdb")
"""What is in these is made from log and snapshots, and can be made again."""

ROW = re.compile(r"^\| `([^`]+\.py)` \| `([^`]+)` \| ((?:`\w+`(?:, )?)+) \|(.*)\|$", re.M)


class Site(NamedTuple):
    """A function that deletes, and what it calls to do so."""

    module: str
    function: str
    call: str


def deleting_names(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """What is called or handed on in a module that deletes, each with the function in which that is done."""
    for node in ast.iter_child_nodes(tree):
        within = function
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                within = f"{function}.{node.name}".lstrip(".")
            case ast.Call(func=called, args=arguments) if function:  # at a module's level are tables of handlers
                names = map(deleting_name, (called, *arguments))
                yield from ((function, name) for name in names if name is not None)
        yield from deleting_names(node, within)


def deleting_name(node: ast.expr) -> str | None:
    match node:
        case ast.Attribute(attr=name, value=ast.Name(id=owner)) if owner in SAYS_WHAT:
            return None
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value="delete_objects" as name):
            return name if name in DELETING else None
    return None


def sites() -> set[Site]:
    """All in what is shipped. What tests authors' plugins deletes what it has made itself, in a place of its own."""
    return {
        Site(str(path), function, name)
        for path in python_files("diskless_core", "plugins", "contrib", "spark")
        if not {"tests", "testing"} & set(path.parts) and not str(path).startswith(STORES_OF_STATE)
        for function, name in deleting_names(ast.parse(read(path)))
    }


def rows() -> list[tuple[Site, list[str]]]:
    """The rows of the page, one for each call, with what the other columns say."""
    return [
        (Site(module, function, call), [cell.strip() for cell in rest.split("|")])
        for module, function, calls, rest in ROW.findall(read(PAGE))
        for call in re.findall(r"\w+", calls)
    ]


def test_every_place_that_deletes_has_a_row() -> None:
    assert sorted(sites() - {site for site, _ in rows()}) == [], (
        f"say in {PAGE} why it may delete, and who could be stale"
    )


def test_every_row_has_a_place_that_deletes() -> None:
    assert sorted({site for site, _ in rows()} - sites()) == [], f"take it off {PAGE}"


def test_no_place_has_two_rows_and_every_row_says_why() -> None:
    found = [site for site, _ in rows()]
    assert sorted(found) == sorted(set(found))
    assert [site for site, cells in rows() if len(cells) < 2 or not all(cells)] == []


def test_a_new_place_that_deletes_is_noticed() -> None:
    code = """
class Tidy:
    async def up(self, tx):
        tx.delete(TABLE, key)
        await self._objects.delete([key])
        partial(self._log.prune, 7)
        def later():
            rmtree(folder)
"""
    assert set(deleting_names(ast.parse(code))) == {
        ("Tidy.up", "delete"),
        ("Tidy.up", "prune"),
        ("Tidy.up.later", "rmtree"),
    }
