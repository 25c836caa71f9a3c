"""Puts the configuration together: sources merged, plugins selected, everything validated, all problems at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from diskless_core.config import sources
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.errors import ConfigError, ConfigProblem
from diskless_core.config.keys import KeySpace
from diskless_core.config.sources import Setting
from diskless_core.config.validation import validate
from diskless_core.plugin.config import environment_name, redact
from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.errors import PluginError, PluginNotFoundError
from diskless_core.plugin_host.manager import PluginManager, SelectedPlugin
from diskless_core.plugin_host.nouns import NOUNS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration that can be used: the broker's settings, and for each noun the backend with its settings.

    Attributes:
        origins: where each property that is set was set: a line of the file, a variable, or `--override`.
    """

    broker: BrokerConfig
    plugins: Mapping[str, SelectedPlugin]
    origins: Mapping[str, str] = field(default_factory=dict)

    def with_node_id(self, node_id: int) -> LoadedConfig:
        """The same for a broker that the cluster has given this id."""
        return replace(self, broker=self.broker.model_copy(update={"node_id": node_id}))


def load_config(
    path: Path | None, overrides: Sequence[str], environ: Mapping[str, str], manager: PluginManager
) -> LoadedConfig:
    """Read and validate a configuration, loading the selected plugins and no others.

    A property in the file gives way to its environment variable, and both to an override. Settings of an installed
    plugin that is not selected are allowed, and not looked at.

    Raises:
        ConfigError: with every problem found.
    """
    in_file, problems = sources.read_file(path) if path is not None else ([], [])
    overriding, override_problems = sources.read_overrides(overrides)
    problems += override_problems
    variables = sources.environment_settings(environ)

    chosen = _choose(in_file, variables, overriding)
    selected, selection_problems = _select(chosen, manager)
    problems += selection_problems
    keys = KeySpace(manager, {noun: setting.value for noun, setting in chosen.items()}, selected)
    in_environment, environment_problems = keys.resolve_variables(variables)
    settings = sources.latest(in_file, in_environment, overriding)
    problems += environment_problems + keys.unknown([*in_file, *overriding])

    broker, broker_problems = validate(BrokerConfig, "", settings)
    problems += broker_problems
    plugins: dict[str, SelectedPlugin] = {}
    for noun, descriptor in selected.items():
        validated, plugin_problems = validate(descriptor.settings, f"{noun}.{descriptor.name}.", settings)
        problems += plugin_problems
        if validated is not None:
            plugins[noun] = SelectedPlugin(descriptor, validated)
    if problems or broker is None:
        raise ConfigError(_without_secrets(problems, keys, settings))
    origins = {key: setting.source for key, setting in settings.items()}
    return LoadedConfig(broker=broker, plugins=plugins, origins=origins)


def _choose(
    in_file: Sequence[Setting], variables: Mapping[str, str], overriding: Sequence[Setting]
) -> Mapping[str, Setting]:
    """Which backend each noun gets; needed before the other variables can be understood."""
    defaults = [Setting(noun.name, noun.default, "default") for noun in NOUNS.values()]
    names = {environment_name(noun): noun for noun in NOUNS}
    in_environment = [Setting(names[name], variables[name].strip(), name) for name in variables if name in names]
    merged = sources.latest(defaults, in_file, in_environment, overriding)
    return {noun: merged[noun] for noun in NOUNS}


def _select(
    chosen: Mapping[str, Setting], manager: PluginManager
) -> tuple[dict[str, Descriptor[Any]], list[ConfigProblem]]:
    selected: dict[str, Descriptor[Any]] = {}
    problems: list[ConfigProblem] = []
    for noun, setting in chosen.items():
        try:
            selected[noun] = manager.get(noun, setting.value).descriptor
        except PluginNotFoundError as error:
            problems.append(_selection_problem(setting, str(error), error.suggestion))
        except PluginError as error:
            problems.append(_selection_problem(setting, f"{error} (more in `diskless plugins list`)", None))
    return selected, problems


def _selection_problem(setting: Setting, message: str, suggestion: str | None) -> ConfigProblem:
    return ConfigProblem(
        key=setting.key, value=setting.value, message=message, suggestion=suggestion, source=setting.source
    )


def _without_secrets(
    problems: Sequence[ConfigProblem], keys: KeySpace, settings: Mapping[str, Setting]
) -> Sequence[ConfigProblem]:
    """The same problems; where a plugin's own check put a secret into its message, it is taken out."""
    secrets = [settings[key].value for key in keys.secret_keys() if key in settings]
    return [replace(problem, message=redact(problem.message, secrets)) for problem in problems]
