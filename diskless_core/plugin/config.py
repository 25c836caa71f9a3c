"""Settings of a plugin: a pydantic model whose fields are the keys after `<noun>.<name>.`.

The broker's own settings are a model of the same kind, so that there is one rule for names, defaults and secrets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr

ENVIRONMENT_PREFIX = "DISKLESS_CONFIG_"

REDACTED = "**********"
"""What stands in a message where a secret was."""


def property_name(field_name: str) -> str:
    """`max_bytes` in Python is `max.bytes` in `server.properties`."""
    return field_name.replace("_", ".")


def environment_name(key: str) -> str:
    """The variable that sets a property: `node.id` is `DISKLESS_CONFIG_NODE_ID`."""
    return ENVIRONMENT_PREFIX + key.replace(".", "_").upper()


def split_list(value: Any) -> Any:
    """A Kafka list: parts separated by commas, spaces around them do not count, empty text is an empty list."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",")) if value.strip() else ()


CommaSeparated = Annotated[tuple[str, ...], BeforeValidator(split_list)]
"""Type of a field that `server.properties` writes as a comma-separated list."""


def parse_json_object(value: SecretStr) -> dict[str, Any]:
    """The object that a `SecretJsonObject` stands for. It may hold secrets.

    Raises:
        ValueError: it is none.
    """
    try:
        parsed = json.loads(value.get_secret_value())
    except ValueError:
        raise ValueError("must be a JSON object") from None
    if not isinstance(parsed, dict):
        raise ValueError("must be a JSON object")
    return parsed


def _json_object(value: SecretStr) -> SecretStr:
    parse_json_object(value)
    return value


SecretJsonObject = Annotated[SecretStr, AfterValidator(_json_object)]
"""Type of a field that is a JSON object with secrets in it; `parse_json_object` reads it."""


class Settings(BaseModel):
    """Base of all models whose fields are properties: frozen, closed, named with dots, defaults checked."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=property_name,
        populate_by_name=True,
        validate_default=True,
        hide_input_in_errors=True,
    )


class PluginSettings(Settings):
    """Base of every plugin's settings.

    Each field has a type, a default, and a `Field(description=...)` that names its unit. Field `endpoint_url` is the
    property `<noun>.<name>.endpoint.url`. Secrets are `pydantic.SecretStr` or `SecretJsonObject`, lists
    `CommaSeparated`. A field without a default has to be configured wherever the plugin is selected.
    """


def secret_values(settings: BaseModel) -> frozenset[str]:
    """The plain values of all `SecretStr` fields that are set, for `redact` and nothing else."""
    values = (getattr(settings, name) for name in type(settings).model_fields)
    return frozenset(value.get_secret_value() for value in values if isinstance(value, SecretStr) and value)


def secret_parts(secret: str) -> frozenset[str]:
    """A secret and, if it is a JSON document, the texts in it: an error may repeat one of them alone."""
    try:
        return frozenset({secret, *_texts(json.loads(secret))})
    except ValueError:
        return frozenset({secret})


def _texts(document: Any) -> Iterable[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict | list):
        for element in document.values() if isinstance(document, dict) else document:
            yield from _texts(element)


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` with every occurrence of a secret, or of a part of a secret JSON document, replaced, the longest first."""
    parts = {part for secret in secrets for part in secret_parts(secret)}
    for secret in sorted(filter(None, parts), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text
