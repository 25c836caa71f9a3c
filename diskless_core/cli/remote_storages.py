"""Remote storages for commands that copy segments: the one that the broker is configured with, and one elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from pydantic import ValidationError

from diskless_core.cli.backends import Backends
from diskless_core.cli.common import fail
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin_host.manager import SelectedPlugin
from diskless_core.plugin_host.nouns import REMOTE_STORAGE
from diskless_core.tiering.retrying import Retries


class RemoteStorages(Backends):
    """Makes remote storages, started, for as long as a command uses them."""

    def own(self) -> AbstractAsyncContextManager[RemoteStorage]:
        """That of the broker."""
        return self._started(self._loaded.plugins)

    def at(self, place: str, options: Sequence[str]) -> AbstractAsyncContextManager[RemoteStorage]:
        """One at a folder or URL. `options` are `key=value` of the default plugin; bad ones end the command."""
        descriptor = self._plugins.get(REMOTE_STORAGE.name, REMOTE_STORAGE.default).descriptor
        given = dict(option.partition("=")[::2] for option in options)
        try:
            settings = descriptor.settings.model_validate({"url": url_of(place), **given})
        except ValidationError as error:
            fail(*(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()))
        return self._started({REMOTE_STORAGE.name: SelectedPlugin(descriptor, settings)})

    @property
    def retries(self) -> Retries:
        """How often, and after which waits, a failed step is done again."""
        return Retries(self.config, self.clock)

    @asynccontextmanager
    async def _started(self, selected: Mapping[str, SelectedPlugin]) -> AsyncIterator[RemoteStorage]:
        storage = self._plugins.create(REMOTE_STORAGE, selected, self._contexts)
        try:
            await storage.start()
            yield storage
        finally:
            await storage.stop()


def url_of(place: str) -> str:
    """The URL of a place that is one, or a folder of this machine."""
    return place if "://" in place else Path(place).absolute().as_uri()
