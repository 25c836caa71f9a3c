"""What can be seen of a plugin before it is started: its version, mistakes in its descriptor and methods, abilities
that are not set.

Pure. Each mistake is a clause that says what to write instead.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import Any

from diskless_core.plugin.forwarding import abilities
from diskless_core.plugin.version import API_VERSION

_Method = Callable[..., Any]

_MAJOR_MINOR = re.compile(r"(\d+)\.(\d+)")


class MethodKind(Enum):
    """How a method is declared; the value is what its author writes."""

    COROUTINE = "async def {}(...)"
    STREAM = "async def {}(...) with a yield"
    PLAIN = "def {}(...), not async"


_PROMISED = {
    MethodKind.COROUTINE: re.compile(r"\b(Awaitable|Coroutine)\b"),
    MethodKind.STREAM: re.compile(r"\b(AsyncIterator|AsyncIterable|AsyncGenerator)\b"),
}
"""Return types by which a plain `def` promises the same as `async def`."""


def incompatibility(wanted: str, offered: str = API_VERSION) -> str | None:
    """Why a plugin written for the API version `wanted` can't run on `offered`, or None if it can."""
    wanted_match, offered_match = _MAJOR_MINOR.fullmatch(wanted), _MAJOR_MINOR.fullmatch(offered)
    if wanted_match is None or offered_match is None:
        return f"its api_version is {wanted!r}, which is not of the form <major>.<minor>, such as {offered!r}"
    wanted_major, wanted_minor = map(int, wanted_match.groups())
    offered_major, offered_minor = map(int, offered_match.groups())
    if wanted_major != offered_major:
        return (
            f"it was written for plugin API {wanted}, this broker offers {offered}: the major versions differ, "
            f"install a version of the plugin for plugin API {offered_major}, or a Diskless that offers {wanted_major}"
        )
    if wanted_minor > offered_minor:
        return f"it needs plugin API {wanted} or newer, this broker offers {offered}: upgrade the broker"
    return None


def mistyped(descriptor: object) -> Sequence[str]:
    """Fields of a descriptor, or of a command group, whose values are of the wrong type."""
    problems = []
    for name in ("app", "api_version", "help"):
        value = getattr(descriptor, name, "")
        if not isinstance(value, str):
            hint = ": put it in quotes" if isinstance(value, int | float) else ""
            problems.append(f"its {name} is {value!r}, which is not a string{hint}")
    found = getattr(descriptor, "capabilities", ())
    if isinstance(found, str) or not isinstance(found, Collection) or not all(isinstance(one, str) for one in found):
        problems.append(f"its capabilities are {found!r}, which is not a set of strings")
    place_apart = getattr(descriptor, "place_apart", None)
    if place_apart is not None and not callable(place_apart):
        problems.append(f"its place_apart is {type(place_apart).__name__}, which can't be called")
    return problems


def missing_methods(implementation: type[Any]) -> Sequence[str]:
    """One mistake with all methods that a class should have and has not, if there are any."""
    missing = sorted(getattr(implementation, "__abstractmethods__", ()))
    return [f"its class {implementation.__name__} lacks methods, write them: {', '.join(missing)}"] if missing else []


def mistaken_methods(interface: type[Any], implementation: type[Any]) -> Sequence[str]:
    """Mistakes in those methods of a class that its interface declares."""
    return [
        f"its method {name} should be `{kind.value.format(name)}`, as {interface.__name__} has it"
        for name, kind in declared_methods(interface)
        if not _is_of_kind(getattr(implementation, name), kind)
    ]


def mistakes(interface: type[Any], backend: object) -> Sequence[str]:
    """What is wrong with a backend that was made: with its methods, and attributes without a default that it lacks."""
    return [
        *mistaken_methods(interface, type(backend)),
        *(
            f"it does not say {name}: set it in {type(backend).__name__}, for there is no default"
            for name in abilities(interface)
            if not hasattr(backend, name)
        ),
    ]


def wrong_signature(factory: _Method) -> Sequence[str]:
    """The mistake of a factory that can't be called with a context and settings, as far as it shows without a call."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return []
    try:
        signature.bind(None, None)
    except TypeError:
        name = getattr(factory, "__name__", type(factory).__name__)
        return [f"its factory {name}{signature} should take two arguments: a PluginContext and the settings"]
    return []


def declared_methods(interface: type[Any]) -> Iterator[tuple[str, MethodKind]]:
    """The public methods of an interface, and how each is to be declared."""
    for name, member in inspect.getmembers(interface, inspect.isfunction):
        if not name.startswith("_"):
            yield name, _kind_of(member)


def _kind_of(method: _Method) -> MethodKind:
    if inspect.iscoroutinefunction(method):
        return MethodKind.COROUTINE
    return (
        MethodKind.STREAM
        if inspect.isasyncgenfunction(method) or _promises(method, MethodKind.STREAM)
        else MethodKind.PLAIN
    )


def _is_of_kind(method: _Method, kind: MethodKind) -> bool:
    inner = inspect.unwrap(method)
    found = {
        MethodKind.COROUTINE: inspect.iscoroutinefunction(inner),
        MethodKind.STREAM: inspect.isasyncgenfunction(inner),
    }
    if any(found.values()):
        return found.get(kind, False)
    return kind is MethodKind.PLAIN or _promises(inner, kind)


def _promises(method: _Method, kind: MethodKind) -> bool:
    annotations = getattr(method, "__annotations__", {})
    return _PROMISED[kind].search(str(annotations.get("return", ""))) is not None
