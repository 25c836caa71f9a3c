"""The backends of a configured broker, opened by commands: most of them look at what a running broker uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from diskless_core.broker.contexts import configured_contexts
from diskless_core.cli.common import discover_plugins, fail, load_or_exit
from diskless_core.clock import Clock, SystemClock
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.load import LoadedConfig
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.coordinator_store import CoordinatorStore
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.folders import FolderInUseError
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.plugin_host.contexts import ContextFactory
from diskless_core.plugin_host.manager import PluginManager, SelectedPlugin
from diskless_core.plugin_host.nouns import (
    COORDINATOR_LOG,
    COORDINATOR_STORE,
    REMOTE_LOG_METADATA,
    REMOTE_STORAGE,
    WAL_OBJECT_STORE,
    backend_errors,
)
from diskless_core.snapshot.format import SnapshotError

T = TypeVar("T")

_FSSPEC = "fsspec"

BACKEND_ERRORS: tuple[type[Exception], ...] = (
    PluginError,
    *backend_errors(),
    SnapshotError,
    FolderInUseError,
)
"""What operators can do something about. Everything else is a defect, and shows its traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """Makes the plugins that a configuration selects, and opens them: for reading, unless it is told otherwise."""

    config: BrokerConfig
    clock: Clock
    _loaded: LoadedConfig
    _plugins: PluginManager
    _contexts: ContextFactory

    @classmethod
    def configured(cls, config: Path | None, override: Sequence[str] | None) -> Self:
        """From the options of a command; ends it with all problems if the configuration is bad."""
        plugins = discover_plugins()
        loaded = load_or_exit(config, override, plugins)
        clock = SystemClock()
        return cls(
            config=loaded.broker,
            clock=clock,
            _loaded=loaded,
            _plugins=plugins,
            _contexts=configured_contexts(loaded, plugins, clock, node_id=TOOL_NODE_ID),
        )

    @asynccontextmanager
    async def objects(self, *, writes: bool = False) -> AsyncIterator[WalObjectStore]:
        """The object store, opened for reading, or as a broker does it."""
        store = self._plugins.create(WAL_OBJECT_STORE, self._loaded.plugins, self._contexts)
        try:
            await (store.start() if writes else store.start_reading())
            yield store
        finally:
            await store.stop()

    @asynccontextmanager
    async def log(self, *, writes: bool = False) -> AsyncIterator[CoordinatorLog]:
        """The coordinator log, opened for reading, or as a broker does it."""
        log = self._plugins.create(COORDINATOR_LOG, self._loaded.plugins, self._contexts)
        try:
            await (log.start() if writes else log.start_reading())
            yield log
        finally:
            await log.stop()

    @property
    def shares_segments(self) -> bool:
        """Whether `remote_storage` is a place that others could have too, and not a broker's own folder or memory."""
        storage = self._plugins.create(REMOTE_STORAGE, self._loaded.plugins, self._contexts)
        return not (storage.is_broker_local or storage.is_process_local)

    @property
    def records_segments(self) -> bool:
        """Whether the coordinators keep `remote_log_metadata`, and so know all segments."""
        return self._loaded.plugins[REMOTE_LOG_METADATA.name].descriptor.name == REMOTE_LOG_METADATA.default

    def segments_as_objects(self) -> WalObjectStore | None:
        """The place of `remote_storage` as an object store, for a command that copies all that is there.

        None where it is not fsspec's, or has no URL of its own, and so lies in a broker's folder.
        """
        chosen = self._loaded.plugins[REMOTE_STORAGE.name]
        settings = chosen.settings.model_dump()
        if chosen.descriptor.name != _FSSPEC or not settings.get("url"):
            return None
        descriptor = self._plugins.get(WAL_OBJECT_STORE.name, _FSSPEC).descriptor
        place = descriptor.settings.model_validate(
            {name: value for name, value in settings.items() if name in descriptor.settings.model_fields}
        )
        selected = {WAL_OBJECT_STORE.name: SelectedPlugin(descriptor, place)}
        return self._plugins.create(WAL_OBJECT_STORE, selected, self._contexts)

    def store(self) -> CoordinatorStore:
        """The coordinator store. No broker may be using it."""
        return self._plugins.create(COORDINATOR_STORE, self._loaded.plugins, self._contexts)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; what a backend says against it ends the command with its message."""
    try:
        return asyncio.run(work)
    except BACKEND_ERRORS as error:
        fail(str(error))
