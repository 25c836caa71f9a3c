"""Validates the settings that belong to one model, and turns pydantic's errors into problems with full keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from diskless_core.config.errors import ConfigProblem
from diskless_core.config.keys import is_secret, model_keys
from diskless_core.config.sources import Setting
from diskless_core.plugin.config import Settings

SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(
    model: type[SettingsT], prefix: str, settings: Mapping[str, Setting]
) -> tuple[SettingsT | None, list[ConfigProblem]]:
    """Build `model` from those of `settings` whose keys begin with `prefix` and are fields of it.

    Returns the model and no problems, or None and all problems. Never raises: a check of a plugin's author that
    raises something unexpected is a problem too.
    """
    fields = model_keys(model, prefix)
    values = {key.removeprefix(prefix): settings[key].value for key in fields if key in settings}
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return None, [_problem(detail, model, prefix, settings) for detail in details]
    except Exception as error:
        message = f"checking the settings raised {type(error).__name__}: {error}"
        return None, [ConfigProblem(key=prefix.rstrip("."), message=message, source="configuration")]


def _problem(
    detail: ErrorDetails, model: type[Settings], prefix: str, settings: Mapping[str, Setting]
) -> ConfigProblem:
    key = _key(detail, model, prefix)
    setting = settings.get(key)
    field = model_keys(model, prefix).get(key)
    shown = setting is not None and field is not None and not is_secret(field)
    message = _message(detail)
    if detail["type"] == "missing" and field is not None:
        message = f"it has to be set: {field.description}"
    return ConfigProblem(
        key=key,
        value=setting.value if setting is not None and shown else None,
        message=message,
        source=_source(detail, setting),
    )


def _source(detail: ErrorDetails, setting: Setting | None) -> str:
    if setting is not None:
        return setting.source
    return "default" if detail["loc"] else "configuration"


def _key(detail: ErrorDetails, model: type[Settings], prefix: str) -> str:
    """The property at fault. pydantic tells a bad value by its alias, but a bad default by the field's name."""
    location = str(detail["loc"][0]) if detail["loc"] else ""
    field = model.model_fields.get(location)
    return (prefix + (field.alias if field is not None and field.alias else location)).rstrip(".")


def _message(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error" and "ctx" in detail:
        return str(detail["ctx"]["error"])
    if detail["type"] == "too_short":
        least = detail["ctx"]["min_length"]
        return "it needs a value" if least == 1 else f"it needs {least} values"
    return detail["msg"].replace("Input should", "it should")
