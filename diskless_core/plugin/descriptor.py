"""What a plugin says of itself: one frozen descriptor for each backend that it brings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.place_apart import PlaceApart

InterfaceT = TypeVar("InterfaceT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor(Generic[InterfaceT]):
    """One backend of one noun. Each noun has a subclass of its own, so that a hook's result can be checked.

    Attributes:
        name: how `server.properties` chooses it: `<noun>=<name>`. Lower case, unique among the noun's backends.
        factory: makes the backend from a context and its validated settings. It must not do I/O.
        settings: pydantic model of `<noun>.<name>.<setting>`.
        api_version: the version of the author API that it was written for, see `diskless_core.plugin.version`.
        help: one sentence for `diskless plugins list`.
        capabilities: optional abilities that the contract suite should check.
        place_apart: makes, of validated settings and a name, a place of that name beside the configured one, for
            `diskless plugins test` and `bench`. Optional: a backend that keeps everything in its `PluginContext`, and
            every object store, can do without, for they are given folders and keys of their own. A backend that writes
            anywhere else should have it, so that a trial can remove what it wrote.
    """

    noun: ClassVar[str]

    name: str
    factory: Callable[[PluginContext, Any], InterfaceT]
    settings: type[PluginSettings] = PluginSettings
    api_version: str
    help: str
    capabilities: frozenset[str] = field(default_factory=frozenset)
    place_apart: Callable[[Any, str], PlaceApart] | None = None
