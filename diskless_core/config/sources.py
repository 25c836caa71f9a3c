"""Where settings come from: a properties file, environment variables, `--override`. Text only, nothing is validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from diskless_core.config.errors import ConfigProblem
from diskless_core.plugin.config import ENVIRONMENT_PREFIX

OVERRIDE_SOURCE = "--override"


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment: its key, its text without spaces around it, and where it was made."""

    key: str
    value: str
    source: str


def environment_settings(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that set properties, by their full names."""
    return {name: value for name, value in environ.items() if name.startswith(ENVIRONMENT_PREFIX)}


def read_file(path: Path) -> tuple[list[Setting], list[ConfigProblem]]:
    """Read a `.properties` file in UTF-8. A key that is set twice is a problem that names both lines."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        elements = list(javaproperties.parse(text))
    except (OSError, UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return [], [
            ConfigProblem(key="--config", value=str(path), message=f"it can't be read: {reason}", source=str(path))
        ]
    lines: dict[str, int] = {}
    settings: list[Setting] = []
    problems: list[ConfigProblem] = []
    line = 1
    for element in elements:
        if isinstance(element, javaproperties.KeyValue):
            source = f"{path.name}:{line}"
            if element.key in lines:
                message = f"it is set twice, in line {lines[element.key]} and in line {line}: keep one of them"
                problems.append(ConfigProblem(key=element.key, message=message, source=source))
            else:
                lines[element.key] = line
                settings.append(Setting(element.key, element.value.strip(), source))
        line += element.source.count("\n")
    return settings, problems


def read_overrides(overrides: Sequence[str]) -> tuple[list[Setting], list[ConfigProblem]]:
    """Read `key=value` arguments; of two for one key the later one holds."""
    settings: dict[str, Setting] = {}
    problems: list[ConfigProblem] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        if equals and key.strip():
            settings[key.strip()] = Setting(key.strip(), value.strip(), OVERRIDE_SOURCE)
        else:
            # The text may be a secret whose key was forgotten, so it is not repeated.
            message = "an override has to be of the form key=value"
            problems.append(ConfigProblem(key=key.strip() if equals else "?", message=message, source=OVERRIDE_SOURCE))
    return list(settings.values()), problems


def latest(*layers: Iterable[Setting]) -> Mapping[str, Setting]:
    """One setting for each key, from the last layer that has it."""
    return {setting.key: setting for layer in layers for setting in layer}
