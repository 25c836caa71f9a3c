"""Renders the files of a project for a backend. Pure but for reading the templates."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from importlib.util import find_spec
from typing import Any

from diskless_core.cli.scaffold.kinds import KINDS, WORKER, Kind
from diskless_core.plugin.command_groups import COMMAND_GROUP, CommandGroup, diskless_command_groups
from diskless_core.plugin.errors import nearest
from diskless_core.plugin.version import API_VERSION
from diskless_core.plugin_host.nouns import NOUNS

MAX_NAME_LENGTH = 30
"""Of a backend: longer ones make lines that are too long, and names that nobody types."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_COMMON = "common"


class ScaffoldError(Exception):
    """No project can be made of this; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project for one backend."""

    noun: str
    name: str

    @property
    def distribution(self) -> str:
        """The name of the distribution, and of the folder."""
        return f"diskless-{self.name.replace('_', '-')}"

    @property
    def package(self) -> str:
        """The name of the package."""
        return f"diskless_{self.name}"

    @property
    def kind(self) -> Kind:
        """What is different for its noun."""
        return KINDS[self.noun]


def checked_project(noun: str, name: str, taken: Collection[str] = ()) -> Project:
    """A project of this noun and name.

    Args:
        taken: names of the noun's backends that are installed, or of all commands.

    Raises:
        ScaffoldError: there is no such noun, or the name cannot be used.
    """
    if noun not in KINDS:
        suggestion = nearest(noun, KINDS)
        hint = f"did you mean {suggestion!r}?" if suggestion else f"there are {', '.join(KINDS)}"
        raise ScaffoldError(f"there is no noun {noun!r}: {hint}")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise ScaffoldError(
            f"the name {name!r} cannot be used: it has to be of lower-case letters, digits and single underscores, "
            f"begin with a letter, and have {MAX_NAME_LENGTH} characters at most"
        )
    if keyword.iskeyword(name):
        raise ScaffoldError(f"the name {name!r} is a keyword of Python: choose another one")
    if name in taken:
        raise ScaffoldError(f"{noun}.{name} is installed already: choose another name, or uninstall it first")
    project = Project(noun=noun, name=name)
    if find_spec(project.package) is not None:
        raise ScaffoldError(f"there is a package {project.package} already: choose another name")
    return project


def render(project: Project) -> Mapping[str, str]:
    """All files of a project by their paths in its folder."""
    values = _values(project)
    package, kind = project.package, project.kind
    is_commands = project.noun == COMMAND_GROUP
    templates = {
        "pyproject.toml": (_COMMON, "pyproject.toml"),
        "README.md": (_COMMON, "README.md"),
        "LICENSE": (_COMMON, "LICENSE"),
        ".gitignore": (_COMMON, "gitignore"),
        ".github/workflows/test.yml": (_COMMON, "test.yml"),
        f"{package}/plugin.py": (project.noun if is_commands else _COMMON, "plugin.py"),
        f"{package}/{kind.module}.py": (project.noun, f"{kind.module}.py"),
        **{
            f"{package}/{name}": (_COMMON if (name, about) == WORKER else project.noun, name)
            for name, about in kind.others.items()
        },
        f"tests/test_{project.name}.py": (project.noun, "test.py"),
    }
    if not is_commands:
        templates[f"{package}/settings.py"] = (project.noun, "settings.py")
    files = {path: _filled(_template(folder, name), values) for path, (folder, name) in templates.items()}
    return {**files, f"{package}/__init__.py": f'"""{kind.summary}."""\n', f"{package}/py.typed": ""}


def _values(project: Project) -> Mapping[str, str]:
    kind = project.kind
    camel = "".join(part.capitalize() for part in project.name.split("_"))
    version = metadata.version("diskless")
    if project.noun == COMMAND_GROUP:
        descriptor: type[Any] = CommandGroup
        hook = diskless_command_groups.__name__
    else:
        noun = NOUNS[project.noun]
        descriptor = noun.descriptor
        hook = noun.hook
    class_name = camel + kind.suffix
    hooks = "from diskless_core.plugin.hookspecs import hookimpl"
    own = [
        f"from {project.package}.{kind.module} import {class_name}",
        f"from {project.package}.settings import {camel}Settings",
    ]
    return {
        "noun": project.noun,
        "name": project.name,
        "camel": camel,
        "class": class_name,
        "module": kind.module,
        "package": project.package,
        "distribution": project.distribution,
        "summary": kind.summary,
        "summary_lower": kind.summary[0].lower() + kind.summary[1:],
        "core_imports": "\n".join(sorted([hooks, f"from {descriptor.__module__} import {descriptor.__name__}"])),
        "own_imports": "\n".join(sorted(own)),
        "descriptor": descriptor.__name__,
        "hook": hook,
        "api_version": API_VERSION,
        "diskless_version": ".".join(version.split(".")[:2]),
        "next_major": str(int(version.split(".")[0]) + 1),
        "files": "\n".join(_file_lines(project)),
        "usage": _usage(project),
    }


def _file_lines(project: Project) -> Iterator[str]:
    kind = project.kind
    yield f"| `{project.package}/{kind.module}.py` | {kind.about} |"
    for name, about in kind.others.items():
        yield f"| `{project.package}/{name}` | {about} |"
    if project.noun != COMMAND_GROUP:
        yield f"| `{project.package}/settings.py` | the settings, each with a description |"


def _usage(project: Project) -> str:
    if project.noun == COMMAND_GROUP:
        return f"```sh\ndiskless {project.name} --help\n```"
    noun, name = project.noun, project.name
    lines = [f"{noun}={name}", *(f"{noun}.{name}.{key}={value}" for key, value in project.kind.properties.items())]
    block = "\n".join(["```properties", *lines, "```"])
    return f"In `server.properties`:\n\n{block}\n\n`diskless plugins describe {noun}.{name}` shows all settings."


def _template(folder: str, name: str) -> str:
    root = resources.files("diskless_core.cli.scaffold")
    return (root / "templates" / folder / f"{name}.tmpl").read_text(encoding="utf-8")


def _filled(template: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)
