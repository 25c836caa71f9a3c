"""Settings models with mistakes that would otherwise show at some user's start."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, Field

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy


class BadDefault(PluginSettings):
    buffer_bytes: int = Field(default=0, ge=1, description="Size of the buffer, in bytes.")


class NoDescription(PluginSettings):
    buffer_bytes: int = 1


class NoPluginSettings(BaseModel):
    buffer_bytes: int = Field(default=1, description="Size of the buffer, in bytes.")


MODELS = {"bad_default": BadDefault, "no_description": NoDescription, "no_plugin_settings": NoPluginSettings}


@hookimpl
def diskless_offset_assignments():
    (descriptor,) = healthy.diskless_offset_assignments()
    return [replace(descriptor, name=name, settings=model) for name, model in MODELS.items()]
