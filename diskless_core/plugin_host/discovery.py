"""Finds plugins: entry points of the group `diskless.plugins`, named `<noun>.<name>`. Imports none of them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from diskless_core.plugin.errors import PluginNotFoundError, nearest

ENTRY_POINT_GROUP = "diskless.plugins"
BUILT_IN_DISTRIBUTION = "diskless"
LOAD_PLUGINS_VARIABLE = "DISKLESS_LOAD_PLUGINS"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEntryPoint:
    """One announced backend, not imported yet.

    Attributes:
        noun: what stands before the first dot of the entry point's name; may be no noun at all.
        name: what stands after it; empty when there is no dot.
        value: where the plugin's module is, as the distribution's metadata writes it.
        distribution: name of the distribution that announces it.
        version: version of that distribution.
        load: imports the module and returns it; raises whatever the import raises.
    """

    noun: str
    name: str
    value: str
    distribution: str
    version: str
    load: Callable[[], object]

    @property
    def key(self) -> str:
        """The entry point's name."""
        return f"{self.noun}.{self.name}" if self.name else self.noun

    @property
    def provider(self) -> str:
        """Distribution and version, for messages."""
        return f"{self.distribution} {self.version}"


EntryPointSource = Callable[[], Iterable[PluginEntryPoint]]
"""Gives what is installed; tests put a list of their own in its place."""


def installed_entry_points() -> Sequence[PluginEntryPoint]:
    """What the distributions of this Python announce. Reads the metadata of all of them: call it once."""
    return [_describe(entry_point) for entry_point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)]


def allowed_entry_points(
    entry_points: Iterable[PluginEntryPoint], environ: Mapping[str, str]
) -> Sequence[PluginEntryPoint]:
    """Those that `DISKLESS_LOAD_PLUGINS` allows.

    Unset, it allows all. Set, it is a comma-separated list of distributions and of `<noun>.<name>`, and nothing else
    is even looked at; the distribution `diskless` itself is always allowed, so the empty text means the built-in ones.

    Raises:
        PluginNotFoundError: an element of the list belongs to nothing that is installed.
    """
    found = list(entry_points)
    if LOAD_PLUGINS_VARIABLE not in environ:
        return found
    wanted = {part.strip() for part in environ[LOAD_PLUGINS_VARIABLE].split(",")} - {""}
    known = {entry_point.key for entry_point in found} | {entry_point.distribution for entry_point in found}
    for name in sorted(wanted - known):
        suggestion = nearest(name, known)
        hint = f"; the nearest is {suggestion!r}" if suggestion else ""
        raise PluginNotFoundError(
            f"{LOAD_PLUGINS_VARIABLE} names {name!r}, but no installed plugin or distribution has that name{hint}",
            suggestion=suggestion,
        )
    wanted.add(BUILT_IN_DISTRIBUTION)
    return [entry_point for entry_point in found if {entry_point.key, entry_point.distribution} & wanted]


def _describe(entry_point: importlib.metadata.EntryPoint) -> PluginEntryPoint:
    noun, _, name = entry_point.name.partition(".")
    distribution = entry_point.dist
    return PluginEntryPoint(
        noun=noun,
        name=name,
        value=entry_point.value,
        distribution=distribution.name if distribution else "unknown",
        version=distribution.version if distribution else "unknown",
        load=entry_point.load,
    )
