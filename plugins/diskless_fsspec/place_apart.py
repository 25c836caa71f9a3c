"""A place below the configured URL, for a trial. Objects and segments are deleted by whoever wrote them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from diskless_core.plugin.place_apart import PlaceApart
from diskless_fsspec.config import FsspecConnection

SettingsT = TypeVar("SettingsT", bound=FsspecConnection)

_FOLDERS = ("file", "local")


def below_url(settings: SettingsT, name: str) -> PlaceApart:
    """The place `name` below the URL; without a URL, the broker's folder is the place."""
    if not settings.url:
        return PlaceApart(settings=settings, where="a folder in it", remove=_nothing)
    url = f"{settings.url.rstrip('/')}/{name}"
    remove = _nothing
    if urlsplit(url).scheme in _FOLDERS:
        folder = Path(unquote(urlsplit(url).path))
        remove = partial(asyncio.to_thread, _remove, folder, [one for one in folder.parents if not one.exists()])
    return PlaceApart(settings=settings.model_copy(update={"url": url}), where=url, remove=remove)


async def _nothing() -> None:
    """What lies there is deleted as a store or a storage deletes it, and nothing else is made."""


def _remove(folder: Path, made: list[Path]) -> None:
    if folder.exists():
        rmtree(folder)
    for parent in made:
        if parent.exists() and not any(parent.iterdir()):
            parent.rmdir()
