"""A place beside the configured one: where a backend can be tried without touching what a broker keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from diskless_core.plugin.config import PluginSettings

PLACE_NAME_CHARACTERS = 60
"""The name of a place has so many characters at most: lower-case letters, digits and dashes, a letter first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceApart:
    """What `Descriptor.place_apart` gives. Making it does not change anything yet.

    Attributes:
        settings: the configured settings, but for a place of its own that is empty and that nothing else uses.
        where: where that is, for people, such as "topics whose names begin with x". Without secrets.
        remove: removes the place with all that is in it, and may raise the noun's error. What was never made is no
            error. Everything that used the place has been stopped before.
    """

    settings: PluginSettings
    where: str
    remove: Callable[[], Awaitable[None]]
