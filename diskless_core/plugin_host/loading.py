"""Loads one announced plugin and checks what it declares. Never raises: a plugin that fails is quarantined."""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pluggy
from pydantic import BaseModel, ValidationError

from diskless_core.plugin.command_groups import CommandGroup, diskless_command_groups
from diskless_core.plugin.config import PluginSettings, property_name
from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.errors import PluginLoadError, nearest
from diskless_core.plugin.hookspecs import PROJECT
from diskless_core.plugin_host import checking
from diskless_core.plugin_host.deprecations import deprecations_told
from diskless_core.plugin_host.discovery import PluginEntryPoint
from diskless_core.plugin_host.nouns import NOUNS, Noun

AnnouncedT = TypeVar("AnnouncedT", Descriptor[Any], CommandGroup)

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_REFERENCE = re.compile(r"[\w.]+:\w+")
_PROPERTY = re.compile(r"[a-z][a-z0-9]*(\.[a-z0-9]+)*")

_PROBES = ("1", "[]", "{}", '""')
"""Texts of all that JSON has. A setting that can be set takes one of them, or refuses all for what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """A usable backend. `location` is the file of its module."""

    entry_point: PluginEntryPoint
    descriptor: Descriptor[Any]
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCommands:
    """Commands that can be called. `location` is the file of the module with the hook."""

    entry_point: PluginEntryPoint
    group: CommandGroup
    location: str

    def app(self) -> object:
        """Import the commands, and return the `typer.Typer`.

        Raises:
            PluginLoadError: that failed.
        """
        module, _, attribute = self.group.app.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (Exception, SystemExit) as error:
            raise PluginLoadError(
                f"the commands of {self.entry_point.key} of {self.entry_point.provider} can't be used: "
                f"importing {self.group.app} failed: {_summary(error)}",
                traceback_text=traceback.format_exc(),
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedPlugin:
    """A plugin that can't be used: `reason` in a line, and the traceback of what happened, empty if nothing raised."""

    entry_point: PluginEntryPoint
    reason: str
    traceback_text: str = ""


class _RefusedError(Exception):
    """What is wrong with a plugin that did not raise by itself."""


def load_plugin(entry_point: PluginEntryPoint) -> LoadedPlugin | QuarantinedPlugin:
    """Import the plugin's module, call its hook and check the descriptor of the announced name."""
    try:
        noun = _noun_of(entry_point)
        with deprecations_told(entry_point):
            module = _import(entry_point)
            descriptors = _call_hook(noun.hook, noun.descriptor, module)
        descriptor = _announced(entry_point, descriptors)
        _check_descriptor(noun, descriptor)
    except _RefusedError as error:
        return _quarantined(entry_point, error)
    return LoadedPlugin(entry_point=entry_point, descriptor=descriptor, location=_location(entry_point, module))


def load_commands(entry_point: PluginEntryPoint) -> LoadedCommands | QuarantinedPlugin:
    """Import the module with the hook, not yet the commands, and check what it declares."""
    try:
        _check_name(entry_point)
        with deprecations_told(entry_point):
            module = _import(entry_point)
            groups = _call_hook(diskless_command_groups.__name__, CommandGroup, module)
        group = _announced(entry_point, groups)
        _check_commands(group)
    except _RefusedError as error:
        return _quarantined(entry_point, error)
    return LoadedCommands(entry_point=entry_point, group=group, location=_location(entry_point, module))


def _quarantined(entry_point: PluginEntryPoint, error: _RefusedError) -> QuarantinedPlugin:
    cause = error.__cause__
    text = "".join(traceback.format_exception(cause)) if cause else ""
    return QuarantinedPlugin(entry_point=entry_point, reason=str(error), traceback_text=text)


def _location(entry_point: PluginEntryPoint, module: object) -> str:
    return str(getattr(module, "__file__", None) or entry_point.value)


def _noun_of(entry_point: PluginEntryPoint) -> Noun[Any]:
    if not entry_point.name:
        raise _RefusedError(f"its entry point {entry_point.key!r} is not named <noun>.<name>")
    noun = NOUNS.get(entry_point.noun)
    if noun is None:
        suggestion = nearest(entry_point.noun, NOUNS)
        hint = f", did you mean {suggestion!r}?" if suggestion else f": the nouns are {', '.join(NOUNS)}"
        raise _RefusedError(f"its entry point names the unknown noun {entry_point.noun!r}{hint}")
    _check_name(entry_point)
    return noun


def _check_name(entry_point: PluginEntryPoint) -> None:
    if not _NAME.fullmatch(entry_point.name):
        raise _RefusedError(f"the name {entry_point.name!r} is not lower-case letters, digits and underscores")


def _import(entry_point: PluginEntryPoint) -> object:
    try:
        return entry_point.load()
    except (Exception, SystemExit) as error:
        raise _RefusedError(f"importing {entry_point.value} failed: {_summary(error)}") from error


def _call_hook(hook: str, element: type[AnnouncedT], module: object) -> list[AnnouncedT]:
    # A manager of its own for each plugin: pluggy then checks this one's hooks, whatever others there are.
    hooks = pluggy.PluginManager(PROJECT)
    hooks.add_hookspecs(type("Hooks", (), {spec.__name__: staticmethod(spec) for spec in _hook_specs()}))
    try:
        hooks.register(module)
    except pluggy.PluginValidationError as error:
        raise _RefusedError(f"a hook does not fit its specification: {_summary(error)}") from error
    _refuse_unknown_hooks(hooks, module)
    caller: pluggy.HookCaller = getattr(hooks.hook, hook)
    if not caller.get_hookimpls():
        raise _RefusedError(f"its module has no function {hook} decorated with @hookimpl")
    try:
        results = caller()
    except (Exception, SystemExit) as error:
        raise _RefusedError(f"its hook {hook} raised {_summary(error)}") from error
    # pluggy leaves out a result that is None
    return _checked_list(hook, element, results[0] if results else None)


def _hook_specs() -> list[Callable[[], list[Any]]]:
    return [*(noun.spec for noun in NOUNS.values()), diskless_command_groups]


def _refuse_unknown_hooks(hooks: pluggy.PluginManager, module: object) -> None:
    for caller in hooks.get_hookcallers(module) or []:
        if not caller.has_spec():
            suggestion = nearest(caller.name, [spec.__name__ for spec in _hook_specs()])
            hint = f", did you mean {suggestion!r}?" if suggestion else ""
            raise _RefusedError(f"its function {caller.name!r} is decorated with @hookimpl but is no hook{hint}")


def _checked_list(hook: str, element: type[AnnouncedT], result: object) -> list[AnnouncedT]:
    expected = f"a list of {element.__name__}"
    if not isinstance(result, list):
        raise _RefusedError(f"its hook {hook} returned {type(result).__name__}, not {expected}")
    for found in result:
        if not isinstance(found, element):
            raise _RefusedError(f"its hook {hook} returned a list with {type(found).__name__}, not {expected}")
    return result


def _announced(entry_point: PluginEntryPoint, descriptors: list[AnnouncedT]) -> AnnouncedT:
    matching = [descriptor for descriptor in descriptors if descriptor.name == entry_point.name]
    if len(matching) > 1:
        raise _RefusedError(f"its hook returned {len(matching)} descriptors named {entry_point.name!r}")
    if not matching:
        names = ", ".join(repr(descriptor.name) for descriptor in descriptors) or "none"
        raise _RefusedError(f"its entry point announces {entry_point.name!r}, but its hook returned {names}")
    return matching[0]


def _check_descriptor(noun: Noun[Any], descriptor: Descriptor[Any]) -> None:
    _check_fields(descriptor)
    _check_factory(noun, descriptor.factory)
    _check_settings(descriptor.settings)


def _check_fields(descriptor: Descriptor[Any] | CommandGroup) -> None:
    problem = "; ".join(checking.mistyped(descriptor)) or checking.incompatibility(descriptor.api_version)
    if problem:
        raise _RefusedError(problem)


def _check_commands(group: CommandGroup) -> None:
    _check_fields(group)
    if not _REFERENCE.fullmatch(group.app):
        raise _RefusedError(f"its app {group.app!r} is not of the form <module>:<attribute>")


def _check_factory(noun: Noun[Any], factory: object) -> None:
    """Refuse a factory that could not make a backend, as far as can be known without calling it."""
    if not callable(factory):
        raise _RefusedError(f"its factory is {type(factory).__name__}, which can't be called")
    problems: list[str] = []
    if isinstance(factory, type) and issubclass(factory, noun.interface):
        interface = noun.interface_of(factory)
        problems += [*checking.missing_methods(factory), *checking.mistaken_methods(interface, factory)]
    problems += checking.wrong_signature(factory)
    if problems:
        raise _RefusedError("; ".join(problems))


def _check_settings(model: type[BaseModel]) -> None:
    """Refuse a settings model whose mistakes would otherwise show only at some user's start."""
    if not (isinstance(model, type) and issubclass(model, PluginSettings)):
        raise _RefusedError("its settings are not a subclass of PluginSettings")
    for name, field in model.model_fields.items():
        key = field.alias or property_name(name)
        if not field.description:
            raise _RefusedError(f"its setting {key!r} has no description")
        if not _PROPERTY.fullmatch(key):
            raise _RefusedError(f"its setting {key!r} is not named in snake_case: max_bytes is the property max.bytes")
    try:
        model()
    except ValidationError as error:
        # A field without a default is legitimate: the operator has to set it.
        bad = [detail for detail in error.errors(include_input=False, include_url=False) if detail["type"] != "missing"]
        if bad:
            where = ".".join(str(part) for part in bad[0]["loc"])
            raise _RefusedError(f"the default of its setting {where!r} is not valid: {bad[0]['msg']}") from error
    except Exception as error:
        raise _RefusedError(f"its settings model raised {_summary(error)}") from error
    for name, field in model.model_fields.items():
        key = field.alias or property_name(name)
        if not any(_takes_text(model, key, probe) for probe in _PROBES):
            raise _RefusedError(
                f"its setting {key!r} can't be set, for properties are texts: use CommaSeparated for a list, "
                "SecretJsonObject for an object, or a BeforeValidator that reads the text"
            )


def _takes_text(model: type[BaseModel], key: str, text: str) -> bool:
    """Whether a field takes the text, or refuses it for another reason than that it is one."""
    try:
        model.model_validate({key: text})
    except ValidationError as error:
        details = error.errors(include_input=False, include_url=False)
        reasons = [detail["type"] for detail in details if detail["loc"][:1] == (key,)]
        return not reasons or any(not reason.endswith("_type") and reason != "is_instance_of" for reason in reasons)
    except Exception:
        # A check of the author's own has read it.
        return True
    return True


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
