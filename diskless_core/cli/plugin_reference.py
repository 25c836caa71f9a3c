"""The reference part of the nouns' pages, from docstrings, and the catalogue of known plugins, from their sources."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from diskless_core.plugin.command_groups import COMMAND_GROUP, CommandGroup
from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin_host.discovery import ENTRY_POINT_GROUP
from diskless_core.plugin_host.nouns import NOUNS, Noun

_SECTION = re.compile(r"(Args|Attributes|Raises|Returns):")
_TITLES = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Raises", "Returns": "Returns"}
_ALIAS = re.compile(r"[A-Z][a-z]\w*")
_ENTRY = re.compile(r"(\w+): (.*)")


def render(noun: Noun[Any]) -> str:
    """What the docstrings of a noun say: its interface, extensions, types, errors, and the descriptor of its hook."""
    interfaces = [noun.interface, *_returned(noun), *noun.extensions]
    parts = ["## Reference", "Made from the docstrings. What they promise is the contract."]
    for interface in interfaces:
        parts += [f"### `{interface.__name__}`", *_described(interface)]
        for name, method in _methods(interface):
            marks = " (has to be written)" if name in interface.__abstractmethods__ else ""
            parts += [f"#### `{_signature(name, method)}`{marks}", *_described(method)]
    parts += _chapter("Types of the interface", [*_aliases(noun), *map(_described_type, _types(noun))])
    parts += _chapter(
        "Errors of the interface", [[f"#### `{error.__name__}`", *_described(error)] for error in _errors(noun)]
    )
    parts += [f"### `{noun.descriptor.__name__}`", f"What `{noun.hook}` returns a list of.", *_described(Descriptor)]
    return "\n\n".join(parts) + "\n"


def render_catalogue(folder: Path) -> str:
    """A table of the plugins of this repository, from the entry points of their projects.

    Args:
        folder: docs/, beside which the projects are.
    """
    rows = sorted(_catalogued(folder.parent), key=lambda row: (_order(row[0]), row[1]))
    lines = ["| Noun | Name | Distribution | What it is | Page |", "|---|---|---|---|---|"]
    for noun, name, distribution, summary in rows:
        page = f"[{noun}](plugins/{noun}.md)" if (folder / "plugins" / f"{noun}.md").exists() else noun
        lines.append(f"| `{noun}` | `{name}` | `{distribution}` | {summary} | {page} |")
    return "\n".join(lines) + "\n"


def _catalogued(root: Path) -> Iterator[tuple[str, str, str, str]]:
    projects = [root / "pyproject.toml", *sorted(root.glob("spark/pyproject.toml")), *_contrib(root)]
    for path in projects:
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for key, module in project.get("entry-points", {}).get(ENTRY_POINT_GROUP, {}).items():
            noun, _, name = key.partition(".")
            yield noun, name, project["name"], _help(path.parent, module, noun, name)


def _help(project: Path, module: str, noun: str, name: str) -> str:
    """What a descriptor says of itself, read without importing it: what it needs may not be installed."""
    descriptor = NOUNS[noun].descriptor.__name__ if noun in NOUNS else CommandGroup.__name__
    path = Path(*module.split(".")).with_suffix(".py")
    [source] = [found for found in (project / path, project / "plugins" / path) if found.exists()]
    for call in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == descriptor:
            said = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
            if said.get("name") == name:
                return str(said["help"]).removesuffix(".")
    raise LookupError(f"{source} has no {descriptor} of the name {name!r} with a help")


def _contrib(root: Path) -> list[Path]:
    return sorted(root.glob("contrib/*/pyproject.toml"))


def _order(noun: str) -> int:
    return [*NOUNS, COMMAND_GROUP].index(noun)


def _returned(noun: Noun[Any]) -> list[type[Any]]:
    """Abstract classes of the noun's module that its backends return or are given, in the order of the module."""
    module = inspect.getmodule(noun.interface)
    found = [
        member
        for member in vars(module).values()
        if inspect.isclass(member) and inspect.isabstract(member) and member.__module__ == noun.interface.__module__
    ]
    return [member for member in found if member is not noun.interface and member not in noun.extensions]


def _chapter(title: str, entries: Sequence[Iterable[str]]) -> list[str]:
    """Nothing without entries."""
    return [f"### {title}", *(part for entry in entries for part in entry)] if entries else []


def _types(noun: Noun[Any]) -> list[type[Any]]:
    """Plain types of the noun's module: what its methods take and return."""
    return [
        member
        for member in vars(inspect.getmodule(noun.interface)).values()
        if inspect.isclass(member)
        and member.__module__ == noun.interface.__module__
        and (is_dataclass(member) or issubclass(member, Enum))
        and not issubclass(member, (Exception, Descriptor))
        and not inspect.isabstract(member)
        and member not in noun.extensions
    ]


def _described_type(described: type[Any]) -> Iterator[str]:
    yield f"#### `{described.__name__}`"
    yield from _described(described)
    if issubclass(described, Enum):
        yield f"Members: {', '.join(f'`{member.name}`' for member in described)}."
    else:
        yield f"Fields: {', '.join(f'`{one.name}: {_annotation(one)}`' for one in fields(described))}."


def _annotation(one: Field[Any]) -> str:
    name = one.type if isinstance(one.type, str) else one.type.__name__
    optional = one.default is not MISSING or one.default_factory is not MISSING
    return f"{name} = ..." if optional else name


def _aliases(noun: Noun[Any]) -> Iterator[list[str]]:
    """Names for types, which have a text below them as their docstring."""
    source = inspect.getsource(sys.modules[noun.interface.__module__])
    for statement, after in pairwise(ast.parse(source).body):
        if not (isinstance(statement, ast.Assign) and isinstance(after, ast.Expr)):
            continue
        [target], said = statement.targets, after.value
        if isinstance(target, ast.Name) and _ALIAS.fullmatch(target.id) and isinstance(said, ast.Constant):
            text = inspect.cleandoc(str(said.value))
            yield [f"#### `{target.id} = {ast.unparse(statement.value)}`", *_paragraphs(text)]


def _errors(noun: Noun[Any]) -> list[type[Exception]]:
    module = inspect.getmodule(noun.interface)
    return [
        member
        for member in vars(module).values()
        if inspect.isclass(member) and issubclass(member, Exception) and member.__module__ == noun.interface.__module__
    ]


def _methods(interface: type[Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(interface).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            yield name, member


def _signature(name: str, method: Callable[..., Any]) -> str:
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name != "self"
    ]
    word = "async " if inspect.iscoroutinefunction(method) else ""
    return f"{word}{name}{inspect.Signature(parameters)}"


def _described(documented: object) -> Iterator[str]:
    """A docstring as paragraphs and lists of Markdown."""
    return _paragraphs(inspect.getdoc(documented) or "")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        first, _, rest = paragraph.partition("\n")
        section = _SECTION.fullmatch(first)
        if section is None:
            yield " ".join(line.strip() for line in paragraph.splitlines())
            continue
        yield f"{_TITLES[section[1]]}:"
        yield "\n".join(_entries(inspect.cleandoc(rest)))


def _entries(text: str) -> Iterator[str]:
    entry: list[str] = []
    for line in text.splitlines():
        if entry and line.startswith(" "):
            entry.append(line.strip())
            continue
        if entry:
            yield " ".join(entry)
        named = _ENTRY.fullmatch(line)
        entry = [f"- `{named[1]}`: {named[2]}" if named else f"- {line}"]
    if entry:
        yield " ".join(entry)
