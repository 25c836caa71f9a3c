"""Backends behind their guards. They forward, and do nothing else.

What is forwarded follows from an interface. One that takes or returns objects whose methods can raise needs a class of
its own here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_store import (
    CoordinatorStore,
    Key,
    Row,
    ShardStore,
    StoreView,
    TableChanges,
    TableSpec,
)
from diskless_core.plugin.forwarding import ForwardingRemoteStorage, take_abilities
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.plugin_host.checking import MethodKind, declared_methods
from diskless_core.plugin_host.guarding import Guard, WatchedIterator
from diskless_core.plugin_host.health import Health, State
from diskless_core.plugin_host.nouns import NOUNS
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata

T = TypeVar("T")

_STARTS = ("start", "start_reading")


def guarded(
    noun: str,
    name: str,
    backend: Any,
    secrets: Collection[str],
    *,
    health: Health | None = None,
    clock: Clock | None = None,
) -> Any:
    """A backend that raises nothing but its noun's own errors, where the noun has some, and whose calls are counted.

    It implements an extension of the noun's interface where the backend does.

    Args:
        health: the record that has the figures; a new one by default.
        clock: measures the calls; the machine's by default.
    """
    known = NOUNS[noun]
    interface = known.interface_of(type(backend))
    behind_guard = _OWN_CLASSES.get(known.interface) or guarded_class(interface)
    record = health or Health(noun, name)
    if not hasattr(interface, "start"):
        record.state = State.STARTED
    return behind_guard(backend, Guard(record, known.error, secrets, clock=clock, expected_s=known.expected_s))


def guarded_class(interface: type[Any]) -> Callable[[Any, Guard], Any]:
    """The class of backends of an interface behind a guard: each method asks the backend, in the guard's context.

    It has the abilities of the backend, and takes them anew when that has started.
    """

    def initialise(self: Any, backend: Any, guard: Guard) -> None:
        take_abilities(interface, backend, self)
        self._backend = backend
        self._guard = guard

    methods = {name: _forwarding(interface, name, kind) for name, kind in declared_methods(interface)}
    return type(f"Guarded{interface.__name__}", (interface,), {"__init__": initialise, **methods})


def _forwarding(interface: type[Any], name: str, kind: MethodKind) -> Callable[..., Any]:
    async def start(self: Any, *args: Any, **kwargs: Any) -> None:
        with self._guard.call(name):
            await getattr(self._backend, name)(*args, **kwargs)
        take_abilities(interface, self._backend, self)

    async def awaited(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._guard.call(name):
            return await getattr(self._backend, name)(*args, **kwargs)

    def iterated(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        with self._guard.call(name):
            return WatchedIterator(getattr(self._backend, name)(*args, **kwargs), self._guard.in_stream(name))

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._guard.call(name):
            return getattr(self._backend, name)(*args, **kwargs)

    if name in _STARTS:
        return start
    return {MethodKind.COROUTINE: awaited, MethodKind.STREAM: iterated, MethodKind.PLAIN: called}[kind]


class GuardedRemoteStorage(ForwardingRemoteStorage):
    """A `remote_storage` behind a guard. What is raised while the core yields a segment's bytes passes it."""

    def __init__(self, storage: RemoteStorage, guard: Guard) -> None:
        super().__init__(storage)
        self._guard = guard

    async def start(self) -> None:
        with self._guard.call("start"):
            await self._storage.start()
        take_abilities(RemoteStorage, self._storage, self)

    async def stop(self) -> None:
        with self._guard.call("stop"):
            await self._storage.stop()

    async def _ask(self, step: Callable[[RemoteStorage], Awaitable[T]]) -> T:
        with self._guard.call("request"):
            return await step(self._storage)

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        source = _Source(data)
        with self._guard.call("copy", unless=lambda error: error is source.failure):
            return await self._storage.copy(metadata, LogSegmentData(log=source.log, indexes=source.indexes))


class _Source:
    """The data of a segment.

    Attributes:
        failure: what the core raised last while it gave them.
    """

    def __init__(self, data: LogSegmentData) -> None:
        self._data = data
        self.failure: Exception | None = None

    def log(self) -> AsyncIterator[ObjectData]:
        return WatchedIterator(self._data.log(), self._failed)

    def indexes(self) -> Mapping[IndexType, bytes]:
        try:
            return self._data.indexes()
        except Exception as error:
            self._failed(error)
            raise

    def _failed(self, error: Exception) -> None:
        self.failure = error


class GuardedCoordinatorStore(CoordinatorStore):
    """A `coordinator_store` behind a guard, and so are the stores of its shards and their views."""

    def __init__(self, store: CoordinatorStore, guard: Guard) -> None:
        self._store = store
        self._guard = guard

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        with self._guard.call("open"):
            return _GuardedShardStore(self._store.open(shard, tables), self._guard)


class _GuardedView(StoreView):
    def __init__(self, view: StoreView, guard: Guard) -> None:
        self._view = view
        self._guard = guard

    def applied_offset(self) -> int:
        with self._guard.call("applied_offset"):
            return self._view.applied_offset()

    def get(self, table: str, key: Key) -> Row | None:
        with self._guard.call("get"):
            return self._view.get(table, key)

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        with self._guard.call("get"):
            return self._view.scan(table, start, end, limit=limit, reverse=reverse)


class _GuardedShardStore(_GuardedView, ShardStore):
    def __init__(self, store: ShardStore, guard: Guard) -> None:
        super().__init__(store, guard)
        self._store = store

    def write(self, changes: Mapping[str, TableChanges], applied_offset: int) -> None:
        with self._guard.call("write"):
            self._store.write(changes, applied_offset)

    def snapshot(self) -> AbstractContextManager[StoreView]:
        with self._guard.call("snapshot"):
            return _guarded_snapshot(self._store.snapshot(), self._guard)

    def clear(self) -> None:
        with self._guard.call("clear"):
            self._store.clear()

    def close(self) -> None:
        with self._guard.call("close"):
            self._store.close()


@contextmanager
def _guarded_snapshot(snapshot: AbstractContextManager[StoreView], guard: Guard) -> Iterator[StoreView]:
    with guard.call("snapshot"):
        view = snapshot.__enter__()
    try:
        yield _GuardedView(view, guard)
    finally:
        with guard.call("snapshot"):
            snapshot.__exit__(None, None, None)


_OWN_CLASSES: Mapping[type[Any], Callable[[Any, Guard], Any]] = {
    CoordinatorStore: GuardedCoordinatorStore,
    RemoteStorage: GuardedRemoteStorage,
}
