"""Where a trial takes place: below names that it draws itself, all of which it removes again."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar

from diskless_core.clock import Clock
from diskless_core.config.load import LoadedConfig
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.coordinator_store import CoordinatorStore
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.place_apart import PlaceApart
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.plugin_host.contexts import ContextFactory
from diskless_core.plugin_host.manager import PluginManager, SelectedPlugin
from diskless_core.plugin_host.nouns import (
    COORDINATOR_LOG,
    COORDINATOR_STORE,
    GATEWAY_PLACEMENT,
    OFFSET_ASSIGNMENT,
    REMOTE_STORAGE,
    WAL_OBJECT_STORE,
    Noun,
    backend_errors,
)
from diskless_core.trial.emptying import delete_segments, empty_objects, prune_shards
from diskless_core.trial.objects_apart import objects_apart
from diskless_core.trial.segments_apart import Copied, SegmentsApart
from diskless_core.trial.shards_apart import LogApart, open_store_apart

InterfaceT = TypeVar("InterfaceT")

NODE_ID = 1
"""The node that a backend is made for where one is enough."""

REMOVAL_S = 60.0
"""How long each step of a removal may take."""

FAILURES: tuple[type[Exception], ...] = (OSError, TimeoutError, PluginError, *backend_errors())
"""What a backend, or making one, may raise."""

_NAME_DIGITS = 12
_ONLY_IN_MEMORY = (OFFSET_ASSIGNMENT.name, GATEWAY_PLACEMENT.name)


class Grounds:
    """All places of a trial of a configuration.

    Attributes:
        name: what every name begins with that the trial gives to anything.
        folder: for what a broker would have in `log.dirs`: on the same file system.
        began: whether a backend has started, so that there may be something to remove.
        left_behind: sentences about what could not be removed.
    """

    def __init__(self, loaded: LoadedConfig, plugins: PluginManager, clock: Clock) -> None:
        self.loaded = loaded
        self.plugins = plugins
        self.clock = clock
        self.name = f"diskless-trial-{clock.new_uuid().hex[:_NAME_DIGITS]}"
        self.folder = loaded.broker.data_dir.absolute() / self.name
        self.began = False
        self.left_behind: list[str] = []
        self._missing = [one for one in self.folder.parents if not one.exists()]
        self._places: dict[str, Place] = {}

    def place(self, label: str) -> Place:
        """A new place, which is empty."""
        made = self._places[label] = Place(self, label)
        return made

    def where(self, noun: str) -> str:
        """Where a trial of a noun's backend takes place, in words."""
        descriptor, settings = self.loaded.plugins[noun]
        folder = f"the folder {self.folder}"
        if noun in _ONLY_IN_MEMORY:
            return f"memory and {folder}"
        if descriptor.place_apart is not None:
            return f"{folder} and {descriptor.place_apart(settings, self.name).where}"
        return f"{folder}, and below names and keys that begin with {self.name}"

    async def remove(self, place: Place) -> None:
        """Empty and remove a place in which nothing runs any more."""
        if place.label in self._places:
            left = await place.remove()
            del self._places[place.label]  # not before: one that was given up is removed in the end
            self.left_behind += left

    async def remove_all(self) -> None:
        """Remove all places and what was made for them."""
        for place in list(self._places.values()):
            await self.remove(place)
        with self.noting(f"the folder {self.folder}"):
            await asyncio.to_thread(self._remove_folders)

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Note that `what` was not removed where that fails."""
        try:
            yield
        except FAILURES as error:
            self.left_behind.append(_not_removed(what, error))

    def _remove_folders(self) -> None:
        if self.folder.exists():
            rmtree(self.folder)
        for made in self._missing:
            if made.exists() and not any(made.iterdir()):
                made.rmdir()


class Place:
    """One place. Backends that are made in it share it, as the brokers of a cluster do.

    Attributes:
        label: tells it from the others of a trial.
        name: the trial's name and the label.
        folder: what backends have for a broker's `log.dirs`. It may not exist.
    """

    def __init__(self, grounds: Grounds, label: str) -> None:
        self.label = label
        self.name = f"{grounds.name}-{label}"
        self._grounds = grounds
        self.folder = grounds.folder / label
        self._aparts: dict[str, PlaceApart | None] = {}
        self._wrote_objects = False
        self._shards: set[ShardId] = set()
        self._copied: Copied = {}
        self._topics: dict[uuid.UUID, uuid.UUID] = {}
        self._uses_objects = False

    def create(self, noun: Noun[InterfaceT], *, node_id: int = NODE_ID, before: Any = None) -> InterfaceT:
        """The configured backend, not started, in this place.

        Args:
            before: for an object store: awaited before each operation.

        Raises:
            PluginError: its factory failed.
        """
        if noun.name == COORDINATOR_STORE.name:
            return self.store_source()()  # type: ignore[return-value]
        backend: Any = self._source(noun, node_id)()
        if isinstance(backend, WalObjectStore):
            return self._objects(backend, before)  # type: ignore[return-value]
        if isinstance(backend, CoordinatorLog) and self._apart(noun.name) is None:
            return LogApart(backend, self.name, self._shards.add)  # type: ignore[return-value]
        if isinstance(backend, RemoteStorage):
            new_id = self._grounds.clock.new_uuid
            return SegmentsApart(  # type: ignore[return-value]
                backend, self.name, topics=self._topics, copied=self._copied, new_id=new_id
            )
        return backend  # type: ignore[no-any-return]

    def store_source(self) -> Callable[[], CoordinatorStore]:
        """Makes coordinator stores in this place, in other processes too."""
        return partial(open_store_apart, self._source(COORDINATOR_STORE, NODE_ID), self.name)

    def where(self, noun: str) -> str:
        """Where a noun's backend keeps what it is given here, in words."""
        apart = self._apart(noun)
        if apart is not None:
            return apart.where
        if noun == WAL_OBJECT_STORE.name:
            return f"keys that begin with {self.name}/"
        return f"the folder {self.folder}, and names that begin with {self.name}"

    async def remove(self) -> list[str]:
        """Remove everything from it; what could not be removed, in sentences."""
        left: list[str] = []

        async def step(what: str, work: Awaitable[str | None]) -> None:
            try:
                async with asyncio.timeout(REMOVAL_S):
                    remains = await work
            except FAILURES as error:
                remains = _not_removed(what, error)
            if remains and self._grounds.began:
                left.append(remains)

        if self._shards:
            await step(f"entries of shards named __{self.name}", self._prune())
        if self._copied:
            storage = self._source(REMOTE_STORAGE, NODE_ID)()
            await step(f"segments of topics named {self.name}", delete_segments(storage, self._copied))
        if self._wrote_objects:
            objects = self._objects(self._source(WAL_OBJECT_STORE, NODE_ID)(), None)
            await step(self.where(WAL_OBJECT_STORE.name), empty_objects(objects, self.where(WAL_OBJECT_STORE.name)))
        for apart in filter(None, self._aparts.values()):
            await step(apart.where, _removed(apart))
        await step(f"the folder {self.folder}", asyncio.to_thread(_remove_folder, self.folder))
        return left

    async def _prune(self) -> str | None:
        log = self._source(COORDINATOR_LOG, NODE_ID)()
        keeps_elsewhere = log.is_shared and not self._uses_objects
        await prune_shards(log, self._shards)
        if not keeps_elsewhere:
            return None
        return (
            f"the shards named __{self.name}… were pruned, but not removed: this log keeps them outside the broker's "
            "folder and object store, and does not say how a place of its own is removed (place_apart)"
        )

    def _objects(self, backend: WalObjectStore, before: Any) -> WalObjectStore:
        prefix = f"{self.name}/" if self._apart(WAL_OBJECT_STORE.name) is None else ""
        waiting = {} if before is None else {"before": before}
        return objects_apart(backend, prefix, on_write=self._note_write, **waiting)

    def _note_write(self) -> None:
        self._wrote_objects = True

    def _apart(self, noun: str) -> PlaceApart | None:
        if noun not in self._aparts:
            descriptor, settings = self._grounds.loaded.plugins[noun]
            made = None if descriptor.place_apart is None else descriptor.place_apart(settings, self.name)
            self._aparts[noun] = made
        return self._aparts[noun]

    def _selected(self, noun: str) -> Mapping[str, SelectedPlugin]:
        selected = self._grounds.loaded.plugins
        apart = self._apart(noun)
        return selected if apart is None else {**selected, noun: selected[noun]._replace(settings=apart.settings)}

    def _source(self, noun: Noun[InterfaceT], node_id: int) -> Callable[[], InterfaceT]:
        return self._grounds.plugins.source(noun, self._selected(noun.name), self._contexts(noun.name, node_id))

    def _contexts(self, noun: str, node_id: int) -> ContextFactory:
        def context_of(_noun: str, name: str) -> PluginContext:
            return PluginContext(
                node_id=node_id,
                data_dir=self.folder / f"node-{node_id}" / noun / name,
                log_dir=self.folder,
                clock=self._grounds.clock,
                object_store=self._open_objects if noun == COORDINATOR_LOG.name else None,
                object_prefix=self._grounds.loaded.broker.diskless_wal_object_prefix,
            )

        return context_of

    def _open_objects(self) -> WalObjectStore:
        self._uses_objects = True
        return self._objects(self._source(WAL_OBJECT_STORE, NODE_ID)(), None)


async def _removed(apart: PlaceApart) -> None:
    await apart.remove()


def _remove_folder(folder: Path) -> None:
    if folder.exists():
        rmtree(folder)


def _not_removed(what: str, error: BaseException) -> str:
    reason = "that took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return f"{what}: not removed, {reason}"
