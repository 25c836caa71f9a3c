"""Settings models with mistakes that would otherwise show at some user's start."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, Json

from diskless_core.plugin.config import CommaSeparated, PluginSettings, SecretJsonObject, split_list
from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy


class BadDefault(PluginSettings):
    buffer_bytes: int = Field(default=0, ge=1, description="Size of the buffer, in bytes.")


class NoDescription(PluginSettings):
    buffer_bytes: int = 1


class NoPluginSettings(BaseModel):
    buffer_bytes: int = Field(default=1, description="Size of the buffer, in bytes.")


class Numbers(PluginSettings):
    ports: list[int] | None = Field(default=None, description="Ports to try.")


class ListsOfLists(PluginSettings):
    racks: Annotated[tuple[list[str], ...], BeforeValidator(split_list)] = Field(default=(), description="Racks.")


class Limits(BaseModel):
    max_bytes: int = 1


class Nested(PluginSettings):
    limits: Limits = Field(default=Limits(), description="What is too much.")


class CamelCase(PluginSettings):
    maxBytes: int = Field(default=1, description="Size of the buffer, in bytes.")  # noqa: N815 - the mistake


def number_of(name):
    return {"small": 1, "large": 2}[name]


class ReadFromText(PluginSettings):
    """All of these can be set, whatever they look like inside."""

    hosts: CommaSeparated = Field(default=(), description="Hosts to try.")
    ports: Annotated[tuple[int, ...], BeforeValidator(split_list)] = Field(default=(), description="Ports to try.")
    several: Annotated[CommaSeparated, Field(min_length=2)] = Field(default=("a", "b"), description="Two or more.")
    limits: Annotated[Limits, BeforeValidator(json.loads)] = Field(
        default=Limits(), description="What is too much, in JSON.", validate_default=False
    )
    words: Json[list[str]] = Field(default=[], description="Words, in JSON.", validate_default=False)
    greeting: Json[str] = Field(default="", description="A word, in JSON.", validate_default=False)
    options: SecretJsonObject | None = Field(default=None, description="Options of the client.")
    careless: Annotated[int, BeforeValidator(number_of)] = Field(default="small", description="Small or large.")
    anything: Any = Field(default=None, description="Whatever you like.")
    size: int = Field(description="Has no default.")


MODELS = {
    "bad_default": BadDefault,
    "no_description": NoDescription,
    "no_plugin_settings": NoPluginSettings,
    "numbers": Numbers,
    "lists_of_lists": ListsOfLists,
    "nested": Nested,
    "camel_case": CamelCase,
    "read_from_text": ReadFromText,
}


@hookimpl
def diskless_offset_assignments():
    (descriptor,) = healthy.diskless_offset_assignments()
    return [replace(descriptor, name=name, settings=model) for name, model in MODELS.items()]
