"""What the HTTP interface answers, as its OpenAPI shows it. Shapes follow Kafka Connect's where it has them."""

from __future__ import annotations

from pydantic import BaseModel


class Readiness(BaseModel):
    """Whether clients can be served. `reasons` is empty when they can."""

    ready: bool
    reasons: list[str] = []


class ErrorAnswer(BaseModel):
    """Kafka Connect's shape of an error."""

    error_code: int
    message: str


class PluginAnswer(BaseModel):
    """One installed plugin. `error` is null where it can be used; `type` is its noun, `location` where its code is."""

    name: str
    type: str
    version: str
    distribution: str
    location: str
    default: bool = False
    api_version: str | None = None
    capabilities: list[str] = []
    help: str | None = None
    error: str | None = None
    traceback: str | None = None


class SettingAnswer(BaseModel):
    """One property that a plugin can be told. Passwords have no default to show."""

    name: str
    type: str
    required: bool
    default_value: str | None
    valid_values: str
    environment: str
    documentation: str


class SettingValidation(BaseModel):
    """One property as it was sent, with everything wrong with it. `value` is null where it is secret or unknown."""

    name: str
    value: str | None
    errors: list[str]


class ValidationAnswer(BaseModel):
    """A configuration of one plugin, judged. All properties of the plugin are listed, then those it does not have."""

    name: str
    type: str
    error_count: int
    configs: list[SettingValidation]
