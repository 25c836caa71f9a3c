"""All valid keys of one configuration: the broker's, the nouns', and those of the selected plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from diskless_core.config.broker import BrokerConfig
from diskless_core.config.errors import ConfigProblem
from diskless_core.config.sources import Setting
from diskless_core.plugin.config import environment_name
from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.errors import nearest
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import NOUNS


def model_keys(model: type[BaseModel], prefix: str = "") -> Mapping[str, FieldInfo]:
    """The fields of a settings model by property, in the order of their declaration."""
    return {prefix + (field.alias or name): field for name, field in model.model_fields.items()}


def is_secret(field: FieldInfo) -> bool:
    """Whether a field's value must never be shown."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


class KeySpace:
    """Tells known keys from unknown ones, and which variable of the environment means which key."""

    def __init__(
        self, manager: PluginManager, chosen: Mapping[str, str], selected: Mapping[str, Descriptor[Any]]
    ) -> None:
        """`chosen` is the configured name for each noun, `selected` those of them that could be loaded."""
        self._fields = dict(model_keys(BrokerConfig))
        for noun, descriptor in selected.items():
            self._fields |= model_keys(descriptor.settings, f"{noun}.{descriptor.name}.")
        self._keys = [*self._fields, *NOUNS]
        self._names = {noun: manager.names(noun) for noun in NOUNS}
        # Prefixes below which any key may stand: of plugins that are not loaded, or could not be.
        self._unchecked = [
            f"{noun}.{name}."
            for noun, names in self._names.items()
            for name in {*names, chosen[noun]}
            if noun not in selected or name != chosen[noun]
        ]

    def secret_keys(self) -> Iterable[str]:
        """Keys whose values must never be shown."""
        return [key for key, field in self._fields.items() if is_secret(field)]

    def unknown(self, settings: Sequence[Setting]) -> list[ConfigProblem]:
        """A problem for each setting whose key means nothing."""
        return [self._unknown(setting) for setting in settings if not self._is_known(setting.key)]

    def resolve_variables(self, variables: Mapping[str, str]) -> tuple[list[Setting], list[ConfigProblem]]:
        """Settings that environment variables make, and a problem for each variable that means nothing."""
        by_variable = {environment_name(key): key for key in self._keys}
        unchecked = tuple(environment_name(prefix) for prefix in self._unchecked)
        settings: list[Setting] = []
        problems: list[ConfigProblem] = []
        for variable, value in variables.items():
            if variable in by_variable:
                settings.append(Setting(by_variable[variable], value.strip(), variable))
            elif not variable.startswith(unchecked):
                suggestion = nearest(variable, by_variable)
                message = "no property has this environment variable"
                problems.append(
                    ConfigProblem(key=variable, message=message, suggestion=suggestion, source="environment")
                )
        return settings, problems

    def _is_known(self, key: str) -> bool:
        return key in self._fields or key in NOUNS or key.startswith(tuple(self._unchecked))

    def _unknown(self, setting: Setting) -> ConfigProblem:
        noun, _, rest = setting.key.partition(".")
        name, dot, option = rest.partition(".")
        if noun in NOUNS and dot and name not in self._names[noun]:
            meant = nearest(name, self._names[noun])
            suggestion = f"{noun}.{meant}.{option}" if meant else None
            message = f"there is no {noun} {name!r}; installed are {', '.join(self._names[noun]) or 'none'}"
        else:
            suggestion = nearest(setting.key, self._keys)
            message = "there is no such property"
        return ConfigProblem(key=setting.key, message=message, suggestion=suggestion, source=setting.source)
