"""Puts a secret into its error messages: in a check of its settings, and in its factories."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, SecretStr, field_validator

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy


class LeakySettings(PluginSettings):
    password: SecretStr = Field(description="Password of nobody.")

    @field_validator("password")
    @classmethod
    def _is_long_enough(cls, value):
        if len(value) < 8:
            raise ValueError(f"{value.get_secret_value()} is too short for a password")
        return value


class CarelessSettings(PluginSettings):
    password: SecretStr = Field(description="Password of nobody.")

    @field_validator("password")
    @classmethod
    def _is_known(cls, value):
        return {}[value.get_secret_value()]


def make_and_leak(context, settings):
    raise PermissionError(f"login with {settings.password.get_secret_value()} was refused")


def make_something_else(context, settings):
    return object()


@hookimpl
def diskless_offset_assignments():
    (descriptor,) = healthy.diskless_offset_assignments()
    return [
        replace(descriptor, name="leaky", settings=LeakySettings, factory=make_and_leak),
        replace(descriptor, name="careless", settings=CarelessSettings),
        replace(descriptor, name="something_else", factory=make_something_else),
    ]
