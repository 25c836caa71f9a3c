"""Describes settings models as data, in Kafka's terms, for the command line, HTTP answers and documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from diskless_core.config.keys import is_secret, model_keys
from diskless_core.config.types import MAX_INT, MAX_LONG
from diskless_core.plugin.config import environment_name

JsonSchema = Mapping[str, Any]

_LIMITS = {"≥": "minimum", ">": "exclusiveMinimum", "≤": "maximum", "<": "exclusiveMaximum"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDescription:
    """One property.

    Attributes:
        name: the full key.
        type: Kafka's name of the type: boolean, int, long, double, string, list or password.
        required: whether it has no default.
        default: the default as one would write it; None where there is none, or where it is nothing.
        valid_values: the range or the choices, empty if all values of the type are valid.
        secret: whether its value is never shown.
        environment: the variable that sets it.
        help: what it means, with its unit.
    """

    name: str
    type: str
    required: bool
    default: str | None
    valid_values: str
    secret: bool
    environment: str
    help: str

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


@cache
def describe_settings(model: type[BaseModel], prefix: str = "") -> Sequence[SettingDescription]:
    """All properties of a model in the order of their declaration; `prefix` is put before their names."""
    schema = model.model_json_schema(by_alias=True)
    return tuple(
        _describe(prefix + name, field, _resolve(schema["properties"][name], schema.get("$defs", {})))
        for name, field in model_keys(model).items()
    )


def configured(settings: BaseModel) -> Mapping[str, str | None]:
    """The values that were given, by property, as one would write them; None where the value is secret."""
    fields = {name: field for name, field in type(settings).model_fields.items() if name in settings.model_fields_set}
    texts = {name: None if is_secret(field) else _text(getattr(settings, name)) for name, field in fields.items()}
    return {
        field.alias or name: texts[name]
        for name, field in fields.items()
        if is_secret(field) or texts[name] is not None
    }


def _describe(name: str, field: FieldInfo, schema: JsonSchema) -> SettingDescription:
    secret = is_secret(field)
    default = None if field.is_required() or secret else _text(field.get_default(call_default_factory=False))
    return SettingDescription(
        name=name,
        type="password" if secret else _type_name(schema),
        required=field.is_required(),
        default=default,
        valid_values=_valid_values(schema),
        secret=secret,
        environment=environment_name(name),
        help=field.description or "",
    )


def _resolve(schema: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """The schema of a field that may be nothing, or is defined elsewhere, as if it were neither."""
    if "$ref" in schema:
        return _resolve(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
    present = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    return {**schema, **_resolve(present[0], definitions)} if len(present) == 1 else schema


def _type_name(schema: JsonSchema) -> str:
    if schema.get("type") == "integer":
        return "int" if schema.get("maximum", schema.get("exclusiveMaximum", MAX_LONG)) <= MAX_INT else "long"
    return {"boolean": "boolean", "number": "double", "array": "list"}.get(schema.get("type", ""), "string")


def _valid_values(schema: JsonSchema) -> str:
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    limits = []
    for word, keyword in _LIMITS.items():
        if schema.get(keyword) not in (None, MAX_INT, MAX_LONG):
            limits.append(f"{word} {schema[keyword]}")
    return ", ".join(limits)


def _text(value: Any) -> str | None:
    """A default as it would stand in `server.properties`."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | list | frozenset):
        return ",".join(str(element) for element in value)
    return str(value)
