"""Names of the author API that are on their way out: they work for one minor release more, and warn.

A renamed name of a module: `__getattr__ = deprecated_names(__name__, {"old": Deprecated(...)})`. A function that goes:
`@deprecated(...)`. The plugin host names the plugin that uses one in the broker's log.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

CallableT = TypeVar("CallableT", bound=Callable[..., Any])


class PluginApiDeprecationWarning(DeprecationWarning):
    """A plugin uses a name of the author API that the next release may not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecated:
    """What is said of a name that goes.

    Attributes:
        since: the API version that deprecated it, `<major>.<minor>`.
        instead: what to use, as `<module>:<name>`.
    """

    since: str
    instead: str

    def message(self, name: str) -> str:
        """The warning for a use of `name`."""
        return f"{name} is deprecated since plugin API {self.since}: use {self.instead.replace(':', '.')}"


def deprecated(name: str, notice: Deprecated) -> Callable[[CallableT], CallableT]:
    """A decorator for a function that still works, and warns when it is called."""

    def decorate(function: CallableT) -> CallableT:
        @functools.wraps(function)
        def warning(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(notice.message(name), PluginApiDeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return warning  # type: ignore[return-value]

    return decorate


def deprecated_names(module: str, names: Mapping[str, Deprecated]) -> Callable[[str], Any]:
    """A `__getattr__` for a module, which finds what its old names have become."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        notice = names[name]
        warnings.warn(notice.message(f"{module}.{name}"), PluginApiDeprecationWarning, stacklevel=2)
        where, _, new_name = notice.instead.partition(":")
        return getattr(importlib.import_module(where), new_name)

    return find
