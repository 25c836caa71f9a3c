"""What can be seen of a backend before it is started: methods of the wrong kind, abilities that it does not tell.

Pure. Each mistake is a clause that says what to write instead.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

_Method = Callable[..., Any]


class _Kind(Enum):
    """How a method is declared; the value is what its author writes."""

    COROUTINE = "async def {}(...)"
    STREAM = "async def {}(...) with a yield"
    PLAIN = "def {}(...), not async"


_PROMISED = {
    _Kind.COROUTINE: re.compile(r"\b(Awaitable|Coroutine)\b"),
    _Kind.STREAM: re.compile(r"\b(AsyncIterator|AsyncIterable|AsyncGenerator)\b"),
}
"""Return types by which a plain `def` promises the same as `async def`."""


def missing_methods(implementation: type[Any]) -> Sequence[str]:
    """One mistake with all methods that a class should have and has not, if there are any."""
    missing = sorted(getattr(implementation, "__abstractmethods__", ()))
    return [f"its class {implementation.__name__} lacks methods, write them: {', '.join(missing)}"] if missing else []


def mistaken_methods(interface: type[Any], implementation: type[Any]) -> Sequence[str]:
    """Mistakes in those methods of a class that its interface declares."""
    return [
        f"its method {name} should be `{kind.value.format(name)}`, as {interface.__name__} has it"
        for name, kind in _declared(interface)
        if not _is_of_kind(getattr(implementation, name), kind)
    ]


def mistakes(interface: type[Any], backend: object) -> Sequence[str]:
    """What is wrong with a backend that was made: with its methods, and attributes without a default that it lacks."""
    return [
        *mistaken_methods(interface, type(backend)),
        *(
            f"it does not say {name}: set it in {type(backend).__name__}, for there is no default"
            for name in inspect.get_annotations(interface)
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


def _declared(interface: type[Any]) -> Iterator[tuple[str, _Kind]]:
    for name, member in inspect.getmembers(interface, inspect.isfunction):
        if not name.startswith("_"):
            yield name, _kind_of(member)


def _kind_of(method: _Method) -> _Kind:
    if inspect.iscoroutinefunction(method):
        return _Kind.COROUTINE
    return _Kind.STREAM if inspect.isasyncgenfunction(method) or _promises(method, _Kind.STREAM) else _Kind.PLAIN


def _is_of_kind(method: _Method, kind: _Kind) -> bool:
    inner = inspect.unwrap(method)
    found = {
        _Kind.COROUTINE: inspect.iscoroutinefunction(inner),
        _Kind.STREAM: inspect.isasyncgenfunction(inner),
    }
    if any(found.values()):
        return found.get(kind, False)
    return kind is _Kind.PLAIN or _promises(inner, kind)


def _promises(method: _Method, kind: _Kind) -> bool:
    annotations = getattr(method, "__annotations__", {})
    return _PROMISED[kind].search(str(annotations.get("return", ""))) is not None
