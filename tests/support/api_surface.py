"""The public surface of the author API, a line for each promise.

`python -m tests.support.api_surface` writes it to a file.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import diskless_core.plugin

FILE = Path(__file__).parents[1] / "architecture" / "author_api.txt"


def surface() -> list[str]:
    """What authors may rely on, sorted: public names, parameters, fields, methods, base classes of errors."""
    return sorted({line for module in _modules() for line in _of_module(module)})


def _modules() -> Iterator[ModuleType]:
    package = diskless_core.plugin
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def _of_module(module: ModuleType) -> Iterator[str]:
    for name, member in vars(module).items():
        if name.startswith("_") or getattr(member, "__module__", module.__name__) != module.__name__:
            continue
        where = f"{module.__name__}.{name}"
        if inspect.isclass(member):
            yield from _of_class(where, member)
        elif inspect.isfunction(member):
            yield f"{where} {_kind(member)}{_parameters(member)}"
        elif name.isupper():
            yield where


def _of_class(where: str, member: type[Any]) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in member.__bases__ if base is not object)
    yield f"{where} class({bases})"
    if dataclasses.is_dataclass(member):
        for field in dataclasses.fields(member):
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            yield f"{where}.{field.name} field{' required' if required else ''}"
    for name, attribute in vars(member).items():
        if name.startswith("_") and name != "__init__":
            continue
        function = attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
        if inspect.isfunction(function) and not (name == "__init__" and dataclasses.is_dataclass(member)):
            required = " required" if getattr(function, "__isabstractmethod__", False) else ""
            yield f"{where}.{name} {_kind(function)}{_parameters(function)}{required}"
        elif isinstance(attribute, property):
            yield f"{where}.{name} property"
    for name in inspect.get_annotations(member):
        if not name.startswith("_") and not dataclasses.is_dataclass(member):
            yield f"{where}.{name} attribute{'' if hasattr(member, name) else ' required'}"


def _kind(function: Any) -> str:
    return "async " if inspect.iscoroutinefunction(function) else ""


def _parameters(function: Any) -> str:
    """Names, kinds and whether there is a default: not types, nor the defaults themselves."""
    empty = inspect.Parameter.empty
    parameters = [
        parameter.replace(annotation=empty, default=empty if parameter.default is empty else ...)
        for parameter in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters)).replace("Ellipsis", "...")


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in surface()), encoding="utf-8")
