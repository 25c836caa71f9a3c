"""Backends behind their guards: nothing leaves them but their noun's own errors."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from diskless_core.clock import SystemClock
from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.coordinator_log import CoordinatorLog, LogOffsetPrunedError
from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStoreError, ShardStore, StoreView
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadata
from diskless_core.plugin.remote_storage import LogSegmentData, RemoteStorage, RemoteStorageError
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
    WalObjectStorePlugin,
)
from diskless_core.plugin_host.contexts import contexts_in
from diskless_core.plugin_host.guarded import guarded
from diskless_core.plugin_host.manager import PluginManager, SelectedPlugin
from diskless_core.plugin_host.nouns import NOUNS, WAL_OBJECT_STORE
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_core.testing.remote_storage_tools import make_segment

GUARDED: list[tuple[str, type[Any], type[Exception]]] = [
    *((noun.name, noun.interface, noun.error) for noun in NOUNS.values() if noun.error is not None),
    ("wal_object_store", ConditionalObjectStore, WalObjectStoreError),
    ("coordinator_store", ShardStore, CoordinatorStoreError),
    ("coordinator_store", StoreView, CoordinatorStoreError),
]


def methods_of(interface: type[Any]) -> list[str]:
    return [name for name, _ in inspect.getmembers(interface, inspect.isfunction) if not name.startswith("_")]


CALLS = [(*noun, method) for noun in GUARDED for method in methods_of(noun[1])]


def raising(interface: type[Any], make: Callable[[], BaseException]) -> Any:
    """A backend of which every method raises, each in its own way."""

    def method(declared: Callable[..., Any]) -> Callable[..., Any]:
        def now(*_: Any, **__: Any) -> Any:
            raise make()

        async def awaited(*_: Any, **__: Any) -> Any:
            raise make()

        async def iterated(*_: Any, **__: Any) -> AsyncIterator[Any]:
            raise make()
            yield

        if inspect.iscoroutinefunction(declared):
            return awaited
        return iterated if "AsyncIterator" in inspect.signature(declared).return_annotation else now

    methods = {name: method(getattr(interface, name)) for name in methods_of(interface)}
    return type("Foreign", (interface,), {**methods, "is_node_local": False, "is_process_local": False})()


class _Opens(CoordinatorStore):
    """Opens a store of one shard, which has views."""

    def __init__(self, store: ShardStore) -> None:
        self._store = store

    def open(self, *_: Any) -> ShardStore:
        return self._store


def behind_guard(noun: str, interface: type[Any], make: Callable[[], BaseException], stack: list[Any]) -> Any:
    backend = raising(interface, make)
    if interface is ShardStore:
        return guarded(noun, "vendor", _Opens(backend), ()).open(None, ())
    if interface is StoreView:
        holder = raising(ShardStore, make)

        @contextmanager
        def snapshot() -> Iterator[StoreView]:
            yield backend

        holder.snapshot = snapshot
        context = guarded(noun, "vendor", _Opens(holder), ()).open(None, ()).snapshot()
        stack.append(context)
        return context.__enter__()
    return guarded(noun, "vendor", backend, ())


async def call(backend: Any, interface: type[Any], name: str) -> Any:
    parameters = list(inspect.signature(getattr(interface, name)).parameters.values())[1:]
    wanted = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    answer = getattr(backend, name)(*([make_segment().metadata] * len(wanted)))
    if inspect.isawaitable(answer):
        return await answer
    if isinstance(answer, AsyncIterator):
        return [one async for one in answer]
    return answer


@pytest.mark.parametrize(("noun", "interface", "due", "method"), CALLS)
async def test_whatever_a_backend_raises_becomes_its_nouns_own_error(
    noun: str, interface: type[Any], due: type[Exception], method: str
) -> None:
    stack: list[Any] = []
    backend = behind_guard(noun, interface, lambda: OSError("connection refused"), stack)
    with pytest.raises(due) as caught:
        await call(backend, interface, method)
    assert isinstance(caught.value.__cause__, OSError)
    if method in ("start", "start_reading"):
        assert str(caught.value) == f"plugin {noun}.vendor did not start: OSError: connection refused"
    else:
        assert str(caught.value) == (
            f"the plugin {noun}.vendor raised OSError: connection refused, where a {due.__name__} was due"
        )
    assert getattr(caught.value, "retriable", True)
    for context in stack:
        context.__exit__(None, None, None)


@pytest.mark.parametrize(("noun", "interface", "due", "method"), CALLS)
async def test_what_the_interface_names_and_what_ends_a_task_pass_unchanged(
    noun: str, interface: type[Any], due: type[Exception], method: str
) -> None:
    for error in (due("as documented"), asyncio.CancelledError(), KeyboardInterrupt()):
        stack: list[Any] = []
        backend = behind_guard(noun, interface, partial(_same, error), stack)
        with pytest.raises(type(error)) as caught:
            await call(backend, interface, method)
        assert caught.value is error
        for context in stack:
            context.__exit__(None, None, None)


def _same(error: BaseException) -> BaseException:
    return error


@pytest.mark.parametrize(
    ("noun", "interface", "error"),
    [
        ("wal_object_store", WalObjectStore, ObjectNotFoundError("k")),
        ("wal_object_store", ConditionalObjectStore, ConditionFailedError("k")),
        ("remote_log_metadata", RemoteLogMetadata, IllegalTransitionError("no")),
        ("coordinator_log", CoordinatorLog, LogOffsetPrunedError("below")),
    ],
)
async def test_the_finer_errors_of_a_noun_stay_what_they_are(noun: str, interface: type[Any], error: Exception) -> None:
    backend = guarded(noun, "vendor", raising(interface, partial(_same, error)), ())
    with pytest.raises(type(error)):
        await call(backend, interface, methods_of(interface)[0])


async def test_a_method_that_is_not_there_is_not_asked_for_again() -> None:
    storage = guarded("remote_storage", "vendor", raising(RemoteStorage, NotImplementedError), ())
    with pytest.raises(RemoteStorageError, match=r"raised NotImplementedError, where a") as caught:
        await call(storage, RemoteStorage, "replace_index")
    assert not caught.value.retriable


async def test_a_mistake_found_at_the_start_is_told_at_once_and_not_tried_again() -> None:
    storage = guarded("remote_storage", "vendor", raising(RemoteStorage, partial(ValueError, "no such folder")), ())
    with pytest.raises(RemoteStorageError, match=r"plugin remote_storage.vendor did not start: ValueError") as caught:
        await storage.start()
    assert not caught.value.retriable


async def test_the_traceback_is_logged_once_for_each_type_and_without_secrets() -> None:
    errors: Iterator[Exception] = iter(
        [OSError("for pass-word"), OSError("again"), KeyError("x"), OSError("once more")]
    )
    store = guarded("wal_object_store", "vendor", raising(WalObjectStore, lambda: next(errors)), {"pass-word"})
    messages = []
    with capture_logs() as logs:
        for _ in range(4):
            with pytest.raises(WalObjectStoreError) as caught:
                await store.get("k", 0, 1)
            messages.append(str(caught.value))
    assert ["Traceback" in one["exception"] for one in logs] == [True, True]
    assert "KeyError" in logs[1]["exception"]
    assert "pass-word" not in str(logs) + str(messages)


async def test_the_abilities_are_those_that_the_backend_has_once_it_is_started() -> None:
    class Store(MemoryWalObjectStore):
        async def start(self) -> None:
            self.requests_are_billed = True

    store = guarded("wal_object_store", "vendor", Store(SystemClock()), ())
    assert not store.requests_are_billed
    await store.start()
    assert store.requests_are_billed
    assert store.is_process_local


async def test_a_store_behind_the_guard_writes_on_condition_if_it_does_so_before_it() -> None:
    inner = MemoryWalObjectStore(SystemClock(), requests_are_billed=True)
    store = guarded("wal_object_store", "vendor", inner, ())
    assert isinstance(store, ConditionalObjectStore)
    assert store.requests_are_billed
    assert store.is_process_local
    version = await store.create("k", b"1")
    assert await store.replace("k", b"2", version) == (await store.get_versioned("k")).version
    assert inner.objects == {"k": b"2"}
    plain = guarded("wal_object_store", "vendor", raising(WalObjectStore, AssertionError), ())
    assert not isinstance(plain, ConditionalObjectStore)


async def test_a_listing_goes_through_and_ends_where_the_reader_ends_it() -> None:
    ended: list[str] = []

    class Store(MemoryWalObjectStore):
        async def list(self, prefix: str = "") -> AsyncIterator[Any]:
            try:
                async for page in super().list(prefix):
                    yield page
            finally:
                ended.append(prefix)

    inner = Store(SystemClock(), page_objects=1)
    store = guarded("wal_object_store", "vendor", inner, ())
    for key in ("a/1", "a/2"):
        await store.put(key, b"x")
    assert [info.key async for page in store.list("a/") for info in page] == ["a/1", "a/2"]
    listing = store.list("a/")
    await anext(listing)
    await listing.aclose()
    assert ended == ["a/", "a/"]
    inner.fail_next(Operation.LIST, error=lambda: OSError("reset"))
    with pytest.raises(WalObjectStoreError, match="raised OSError: reset"):
        await anext(store.list("a/"))


@pytest.mark.parametrize("where", ["log", "indexes"])
async def test_what_the_core_raises_while_a_segment_is_copied_comes_back_to_it(where: str) -> None:
    damage = CorruptBatchError("a batch is damaged")

    class Storage(raising(RemoteStorage, AssertionError).__class__):  # type: ignore[misc]
        async def copy(self, metadata: Any, data: LogSegmentData) -> None:
            async for _ in data.log():
                pass
            data.indexes()

    async def log() -> AsyncIterator[bytes]:
        yield b"x"
        if where == "log":
            raise damage

    def indexes() -> Any:
        raise damage

    storage = guarded("remote_storage", "vendor", Storage(), ())
    with capture_logs() as logs, pytest.raises(CorruptBatchError) as caught:
        await storage.copy(make_segment().metadata, LogSegmentData(log=log, indexes=indexes))
    assert caught.value is damage
    assert not logs


def make_vendors(_context: Any, _settings: PluginSettings) -> WalObjectStore:
    store = MemoryWalObjectStore(SystemClock())
    store.fail_next(Operation.PUT, error=lambda: OSError("broken pipe"))
    return store


async def test_what_a_manager_makes_is_guarded_in_other_processes_too(tmp_path: Path) -> None:
    descriptor = WalObjectStorePlugin(name="vendor", factory=make_vendors, api_version="1.0", help="It fails.")
    selected = {"wal_object_store": SelectedPlugin(descriptor, PluginSettings())}
    source = PluginManager([]).source(WAL_OBJECT_STORE, selected, contexts_in(tmp_path, SystemClock(), node_id=1))
    made: Sequence[WalObjectStore] = [source(), pickle.loads(pickle.dumps(source))()]
    for store in made:
        with pytest.raises(WalObjectStoreError, match=r"plugin wal_object_store.vendor raised OSError: broken pipe"):
            await store.put(str(uuid.UUID(int=0)), b"x")
