"""Chooses plugins by name, loads what is asked for, and makes backends from them."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from diskless_core.plugin.command_groups import COMMAND_GROUP
from diskless_core.plugin.config import PluginSettings, redact, secret_values
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.errors import (
    PluginConflictError,
    PluginFactoryError,
    PluginLoadError,
    PluginNotFoundError,
    nearest,
)
from diskless_core.plugin_host import checking
from diskless_core.plugin_host.contexts import ContextFactory
from diskless_core.plugin_host.discovery import (
    LOAD_PLUGINS_VARIABLE,
    EntryPointSource,
    PluginEntryPoint,
    allowed_entry_points,
    installed_entry_points,
)
from diskless_core.plugin_host.guarded import guarded
from diskless_core.plugin_host.health import Health, HealthBook
from diskless_core.plugin_host.loading import (
    LoadedCommands,
    LoadedPlugin,
    QuarantinedPlugin,
    load_commands,
    load_plugin,
)
from diskless_core.plugin_host.nouns import NOUNS, Noun

InterfaceT = TypeVar("InterfaceT")


class SelectedPlugin(NamedTuple):
    """A configured backend: what it declares, and its validated settings."""

    descriptor: Descriptor[Any]
    settings: PluginSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything that is installed and allowed, in the order of the nouns, then by name."""

    loaded: Sequence[LoadedPlugin]
    commands: Sequence[LoadedCommands]
    quarantined: Sequence[QuarantinedPlugin]


_Outcome = LoadedPlugin | LoadedCommands | QuarantinedPlugin
_LoadedT = TypeVar("_LoadedT", LoadedPlugin, LoadedCommands)


class PluginManager:
    """The plugins of this process. Each is loaded when it is first asked for, at most once.

    Attributes:
        health: what is known of the calls of all backends that were made.
    """

    def __init__(self, entry_points: Iterable[PluginEntryPoint]) -> None:
        self._announced: dict[tuple[str, str], list[PluginEntryPoint]] = defaultdict(list)
        for entry_point in entry_points:
            self._announced[entry_point.noun, entry_point.name].append(entry_point)
        self._results: dict[tuple[str, str], _Outcome] = {}
        self.health = HealthBook()

    @classmethod
    def discover(cls, environ: Mapping[str, str], source: EntryPointSource = installed_entry_points) -> PluginManager:
        """Find what is installed and what `DISKLESS_LOAD_PLUGINS` in `environ` allows of it. Imports no plugin.

        Raises:
            PluginNotFoundError: `DISKLESS_LOAD_PLUGINS` names something that is not installed.
        """
        return cls(allowed_entry_points(source(), environ))

    def names(self, noun: str) -> Sequence[str]:
        """Names of the backends of a noun, sorted, whether they would load or not."""
        return sorted(name for announced_noun, name in self._announced if announced_noun == noun and name)

    def get(self, noun: str, name: str) -> LoadedPlugin:
        """The plugin, loaded now unless it was before.

        Raises:
            PluginNotFoundError: no installed distribution announces it, or it is commands.
            PluginConflictError: more than one does.
            PluginLoadError: it failed to load.
        """
        if noun == COMMAND_GROUP and name in self.names(noun):
            raise PluginNotFoundError(f"{noun}.{name} is commands, without settings: see `diskless {name} --help`")
        if not self._announced.get((noun, name)):
            raise self._not_found(noun, name)
        return self._usable(LoadedPlugin, noun, name)

    def commands(self, name: str) -> LoadedCommands:
        """Commands of a plugin; `names(COMMAND_GROUP)` has all of them.

        Raises:
            PluginConflictError: more than one distribution announces commands of this name.
            PluginLoadError: the plugin failed to load.
        """
        return self._usable(LoadedCommands, COMMAND_GROUP, name)

    def catalogue(self) -> Catalogue:
        """Load every plugin and say what came of it."""
        results = [result for announced in self._announced.values() for result in self._outcomes(announced)]
        order = list(NOUNS)
        results.sort(
            key=lambda result: (
                order.index(result.entry_point.noun) if result.entry_point.noun in NOUNS else len(order),
                result.entry_point.key,
                result.entry_point.distribution,
            )
        )
        return Catalogue(
            loaded=[result for result in results if isinstance(result, LoadedPlugin)],
            commands=[result for result in results if isinstance(result, LoadedCommands)],
            quarantined=[result for result in results if isinstance(result, QuarantinedPlugin)],
        )

    def create(
        self, noun: Noun[InterfaceT], selected: Mapping[str, SelectedPlugin], context_factory: ContextFactory
    ) -> InterfaceT:
        """Make the backend of a noun from what `load_config` selected; it is not started.

        If its noun has errors of its own, it raises no others.

        Raises:
            PluginFactoryError: the factory raised or returned something else. Values of secrets are not in it.
        """
        return self.source(noun, selected, context_factory)()

    def source(
        self, noun: Noun[InterfaceT], selected: Mapping[str, SelectedPlugin], context_factory: ContextFactory
    ) -> Callable[[], InterfaceT]:
        """What does as `create` with every call, also in other processes.

        It can be pickled where the plugin's factory is a function or a class of a module. It holds the settings,
        secrets included.
        """
        descriptor, settings = selected[noun.name]
        context = context_factory(noun.name, descriptor.name)
        health = self.health.of(noun.name, descriptor.name)
        return partial(_make, noun, descriptor.name, descriptor.factory, context, settings, health)

    def _usable(self, kind: type[_LoadedT], noun: str, name: str) -> _LoadedT:
        announced = self._announced[noun, name]
        if len(announced) > 1:
            raise PluginConflictError(_conflict(announced))
        result = self._load(announced[0])
        if isinstance(result, QuarantinedPlugin):
            raise PluginLoadError(
                f"plugin {noun}.{name} of {announced[0].provider} can't be used: {result.reason}",
                traceback_text=result.traceback_text,
            )
        if not isinstance(result, kind):
            raise TypeError(f"{noun}.{name} is {type(result).__name__}, not {kind.__name__}")
        return result

    def _load(self, entry_point: PluginEntryPoint) -> _Outcome:
        key = (entry_point.noun, entry_point.name)
        if key not in self._results:
            is_commands = entry_point.noun == COMMAND_GROUP
            self._results[key] = load_commands(entry_point) if is_commands else load_plugin(entry_point)
        return self._results[key]

    def _outcomes(self, announced: Sequence[PluginEntryPoint]) -> list[_Outcome]:
        if len(announced) == 1:
            return [self._load(announced[0])]
        reason = _conflict(announced)
        return [QuarantinedPlugin(entry_point=entry_point, reason=reason) for entry_point in announced]

    def _not_found(self, noun: str, name: str) -> PluginNotFoundError:
        if noun not in NOUNS:
            suggestion = nearest(noun, NOUNS)
            return PluginNotFoundError(
                f"there is no kind of plugin {noun!r}; there are {', '.join(NOUNS)}", suggestion=suggestion
            )
        names = self.names(noun)
        there_are = f"installed are {', '.join(names)}" if names else "none is installed"
        return PluginNotFoundError(f"there is no {noun} {name!r}; {there_are}", suggestion=nearest(name, names))


def _make(
    noun: Noun[InterfaceT],
    name: str,
    factory: Callable[[PluginContext, Any], InterfaceT],
    context: PluginContext,
    settings: PluginSettings,
    health: Health,
) -> InterfaceT:
    label = f"plugin {noun.name}.{name}"
    secrets = secret_values(settings)
    try:
        backend = factory(context, settings)
    except Exception as error:
        # Without its cause: the chained exception would print the secrets that were just removed.
        raise PluginFactoryError(
            redact(f"{label} did not start: {type(error).__name__}: {error}", secrets),
            traceback_text=redact(traceback.format_exc(), secrets),
        ) from None
    if not isinstance(backend, noun.interface):
        raise PluginFactoryError(
            f"the factory of {label} made {type(backend).__name__}, which is no {noun.interface.__name__}"
        )
    if mistakes := checking.mistakes(noun.interface_of(type(backend)), backend):
        raise PluginFactoryError(f"{label} can't be used: {'; '.join(mistakes)}")
    made: InterfaceT = guarded(noun.name, name, backend, secrets, health=health, clock=context.clock)
    return made


def _conflict(announced: Sequence[PluginEntryPoint]) -> str:
    providers = " and ".join(entry_point.provider for entry_point in announced)
    return f"{announced[0].key} is provided by {providers}: uninstall all but one, or narrow {LOAD_PLUGINS_VARIABLE}"
