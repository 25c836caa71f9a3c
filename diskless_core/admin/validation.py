"""Judges a plugin's configuration as `server.properties` would be judged, every problem at once, no secret repeated."""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.admin.models import SettingValidation, ValidationAnswer
from diskless_core.config.keys import is_secret, model_keys
from diskless_core.config.sources import Setting
from diskless_core.config.validation import validate
from diskless_core.plugin.config import redact
from diskless_core.plugin.errors import nearest
from diskless_core.plugin_host.loading import LoadedPlugin

_SOURCE = "request"


def validate_plugin(plugin: LoadedPlugin, values: Mapping[str, str]) -> ValidationAnswer:
    """Judge `values`, keyed by full property names such as `wal_object_store.fsspec.url`."""
    prefix = f"{plugin.entry_point.key}."
    fields = model_keys(plugin.descriptor.settings, prefix)
    settings = {key: Setting(key, value.strip(), _SOURCE) for key, value in values.items()}
    _, problems = validate(plugin.descriptor.settings, prefix, settings)
    secrets = [settings[key].value for key, field in fields.items() if key in settings and is_secret(field)]

    found: dict[str, list[str]] = {key: [] for key in [*fields, *sorted(values.keys() - fields.keys())]}
    for key in values.keys() - fields.keys():
        found[key].append(_unknown(key, fields))
    for problem in problems:
        found.setdefault(problem.key, []).append(redact(problem.message, secrets))
    shown = {key for key in fields if key in settings and not is_secret(fields[key])}
    configs = [
        SettingValidation(name=key, value=settings[key].value if key in shown else None, errors=errors)
        for key, errors in found.items()
    ]
    return ValidationAnswer(
        name=plugin.entry_point.name,
        type=plugin.entry_point.noun,
        error_count=sum(len(errors) for errors in found.values()),
        configs=configs,
    )


def _unknown(key: str, known: Mapping[str, object]) -> str:
    suggestion = nearest(key, known)
    return f"there is no such property; did you mean {suggestion}?" if suggestion else "there is no such property"
