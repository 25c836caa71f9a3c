"""A folder that is not there any more, for backends that keep what they have in one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path


@asynccontextmanager
async def taken_by_a_file(folder: Path) -> AsyncIterator[None]:
    """While it lasts, a file is where the folder was, so that every request to it fails. Then all is as before."""
    with _moved_away(folder):
        yield


@contextmanager
def _moved_away(folder: Path) -> Iterator[None]:
    aside = folder.with_name(f"{folder.name}-aside")
    folder.rename(aside)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)
