"""The language of the scenarios: requests as plain data, in which names stand for what a broker answered before.

In every text `$` stands for a name that no other scenario has, so that a topic may be called `$` or `$-other`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from diskless_core.broker.apis import CLIENT_APIS
from diskless_core.protocol.messages import KAFKA_APIS

OLDEST_PRODUCE_VERSION = 3
"""Older ones are advertised but refused by both brokers."""

NO_ID = uuid.UUID(int=0)
UNKNOWN_ID = uuid.UUID("6f2d3c1a-8f61-4a7e-9b57-1c2d3e4f5a6b")

VERSIONS = {
    KAFKA_APIS[api.api_key].request.__name__.removesuffix("Request"): range(
        OLDEST_PRODUCE_VERSION if api.api_key == 0 else api.min_version, api.max_version + 1
    )
    for api in (served.advertised for served in CLIENT_APIS.values())
}
"""The versions of each API, by its name, that a scenario may use."""


@dataclass(frozen=True, slots=True)
class The:
    """What a step has saved under this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Made:
    """What a function makes of its arguments once names in them have their values."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class Answer(Enum):
    """When the answer to a request is waited for."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request.

    Attributes:
        fields: of the request, by kafka-python's names; those that the version lacks are left out, those that are
            missing have their defaults.
        version: by default the scenario's, if it is about this API, else the newest.
        saves: names for parts of the answer, by their paths in it.
        until: paths and values; the request is repeated until the answer has them.
        shown: whether the answers are compared.
        only_own: whether topics and groups of other scenarios are left out of the answer.
    """

    api: str
    fields: Mapping[str, Any]
    version: int | None = None
    on: str = "first"
    answer: Answer = Answer.NOW
    saves: Mapping[str, str] = field(default_factory=dict)
    until: Mapping[str, Any] = field(default_factory=dict)
    shown: bool = True
    only_own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """The answer to a request of before that was to be answered later."""

    on: str
    saves: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Bytes as they go over the wire behind their size, and how the answer to them is to be read."""

    data: bytes
    api: str
    version: int


Step = Ask | Await | Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Steps that both brokers are taken through.

    Attributes:
        api: what the scenario is about; it is run for each of `versions` of it.
        differs: names of the differences that are expected, each of which has to be seen.
    """

    title: str
    steps: tuple[Step, ...]
    api: str = ""
    versions: tuple[int, ...] = (-1,)
    differs: tuple[str, ...] = ()


def scenario(title: str, *parts: Step | tuple[Step, ...], about: str = "", differs: tuple[str, ...] = ()) -> Scenario:
    """A scenario.

    Args:
        parts: steps, and tuples of them.
        about: an API, and which of its versions: "Fetch" for all, "Fetch 4 12 13" for some, "Fetch 7+" for those
            from one on, "Fetch ends" for the oldest and the newest.
    """
    steps = tuple(step for part in parts for step in (part if isinstance(part, tuple) else (part,)))
    if not about:
        return Scenario(title=title, steps=steps, differs=differs)
    api, *wanted = about.split()
    return Scenario(title=title, steps=steps, api=api, versions=_versions(api, wanted), differs=differs)


def _versions(api: str, wanted: list[str]) -> tuple[int, ...]:
    known = VERSIONS[api]
    if not wanted:
        return tuple(known)
    if wanted == ["ends"]:
        return tuple(dict.fromkeys((known[0], known[-1])))
    if wanted[0].endswith("+"):
        return tuple(range(int(wanted[0][:-1]), known[-1] + 1))
    return tuple(map(int, wanted))


def ask(api: str, **fields: Any) -> Ask:
    return Ask(api=api, fields=fields)


def resolve(value: Any, names: Mapping[str, Any]) -> Any:
    """The value with every name in it replaced; `names["$"]` is the scenario's own."""
    match value:
        case The(name):
            return names[name]
        case Made(function, arguments, options):
            return function(*resolve(list(arguments), names), **resolve(dict(options), names))
        case str():
            return value.replace("$", names["$"])
        case Mapping():
            return {key: resolve(item, names) for key, item in value.items()}
        case list() | tuple():
            return [resolve(item, names) for item in value]
    return value


def build(api: str, version: int, fields: Mapping[str, Any]) -> Any:
    """kafka-python's message of a request."""
    request_class = next(found.request for found in KAFKA_APIS.values() if found.request.__name__ == f"{api}Request")
    return _container(request_class, fields, version)


def _container(container: Any, values: Mapping[str, Any], version: int) -> Any:
    converted = {}
    for name, value in values.items():
        described = container.fields[name]
        if not described.for_version_q(version):
            continue
        if value is not None and described.is_struct_array():
            value = [_container(described.data_class, item, version) for item in value]
        elif value is not None and described.is_struct():
            value = _container(described.data_class, value, version)
        converted[name] = value
    return container(version=version, **converted)
