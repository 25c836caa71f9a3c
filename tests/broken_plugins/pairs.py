"""Nothing is wrong with it: it has two settings that go together."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, model_validator

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy


class PairSettings(PluginSettings):
    first: int | None = Field(default=None, gt=0, lt=10, description="One number.")
    second: int | None = Field(default=None, description="Another number.")

    @model_validator(mode="after")
    def _both_or_none(self):
        if (self.first is None) != (self.second is None):
            raise ValueError("first and second go together")
        return self


@hookimpl
def diskless_offset_assignments():
    (descriptor,) = healthy.diskless_offset_assignments()
    return [replace(descriptor, name="pairs", settings=PairSettings)]
