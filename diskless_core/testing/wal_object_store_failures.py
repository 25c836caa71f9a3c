"""The part of the `wal_object_store` contract about failures: of the place, of a start, of the power, and cancellation.

It also has what a stopped store leaves behind. All fixtures here are optional: without one, its tests skip.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar, TypeVar

import pytest

from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)
from diskless_core.testing.leaks import CYCLES, Held, tasks_left
from diskless_core.testing.patience import within
from diskless_core.testing.power_cut import Image, SyncedFiles
from diskless_core.testing.wal_object_store_tools import KEY, MEBIBYTE, ObjectBackDoor, body, listed, read_whole

T = TypeVar("T")

MakeObjectStore = Callable[[], WalObjectStore]
"""Makes instances, not started, on the place of `store`, each as after a restart of the broker."""

DisturbBackend = Callable[[], AbstractAsyncContextManager[None]]
"""Makes a context in which the place does not do as it should."""

CANCELLED_PUTS = 20

_LATE_S = 0.4
"""What still arrives at a service after its sender was stopped arrives within so long."""


class ObjectStoreFailureContract:
    """What holds when something fails or ends; `WalObjectStoreContract` includes it.

    Attributes:
        secrets: what was configured and must be in no message, such as a password.
    """

    secrets: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def store(self) -> WalObjectStore:
        """As that of `ObjectListingContract`."""
        raise NotImplementedError("give this fixture in the subclass")

    @pytest.fixture
    def make_store(self) -> MakeObjectStore | None:
        """Makes more instances on the place of `store`; None skips the tests that need several."""
        return None

    @pytest.fixture
    def synced_files(self) -> SyncedFiles | None:
        """Watches over the folder that the stores of `make_store` write to; None skips the tests that cut the power.

        For a store that syncs its files itself, with `os.fsync` or `os.fdatasync`, before it acknowledges.
        """
        return None

    @pytest.fixture
    def unopenable_store(self) -> WalObjectStore | None:
        """An instance that cannot be started, with settings that have the `secrets`; None skips the test.

        Its folder is a file, or nobody is where its service should be.
        """
        return None

    @pytest.fixture
    def fail_backend(self) -> DisturbBackend | None:
        """Makes a context in which every request of `store` to its place fails; None skips the tests that need it."""
        return None

    @pytest.fixture
    def hang_backend(self) -> DisturbBackend | None:
        """Makes a context in which the place answers `store` nothing; None skips the test that needs it.

        The store may be configured to give a request up after less than 30 seconds.
        """
        return None

    # -- failures -------------------------------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_a_failure_is_told_as_one_and_without_secrets(
        self,
        started: WalObjectStore,
        back_door: ObjectBackDoor,
        fail_backend: DisturbBackend | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The core tries a failed call again. It never does so for an object that is not there."""
        fail_backend = _given(fail_backend, "the place of this store cannot be made to fail (fail_backend)")
        back_door.write(KEY, b"data")
        back_door.write("other", b"data")
        async with fail_backend():
            for name, call in _calls(started).items():
                error = await self.failure_of(name, call)
                assert error is not None, f"{name} says that it has succeeded while the place failed"
                assert not isinstance(error, ObjectNotFoundError), f"{name} takes a failure for an absent object"
                assert not isinstance(error, ConditionFailedError), f"{name} takes a failure for a refused condition"
        assert not any(secret in caplog.text for secret in self.secrets), "no secret is logged"
        assert await read_whole(started, "other") == b"data", "a store goes on when its place does"
        await started.put("after", b"data")
        assert back_door.read("after") == b"data"

    @pytest.mark.asyncio
    async def test_a_call_that_the_place_never_answers_ends_all_the_same(
        self, started: WalObjectStore, hang_backend: DisturbBackend | None
    ) -> None:
        hang_backend = _given(hang_backend, "the place of this store cannot be made to hang (hang_backend)")
        await started.put(KEY, b"data")
        async with hang_backend():
            for name, call in _calls(started).items():
                async with within(f"{name} ends, though nothing is answered", 30.0):
                    error = await self.failure_of(name, call)
                assert error is not None, f"{name} says that it has succeeded, and nothing was answered"
                assert error.retriable, f"{name} may succeed when it is tried again, and says that it cannot"

    # -- start and stop -------------------------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_what_is_there_when_a_store_starts_stays_there(
        self, store: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        back_door.write(KEY, b"data")
        async with _running(store):
            assert list(await listed(store)) == [KEY], "a start leaves the objects as they are and adds none"
            assert await read_whole(store, KEY) == b"data"

    @pytest.mark.asyncio
    async def test_what_one_instance_stored_the_next_one_finds(
        self, make_store: MakeObjectStore | None, store: WalObjectStore
    ) -> None:
        make_store = _given(make_store, "only one instance can be made of this store (make_store)")
        if store.is_process_local:
            pytest.skip("this store does not claim to keep anything (is_process_local)")
        for number in range(3):
            async with _running(make_store()) as instance:
                assert set(await listed(instance)) == {f"restart/{earlier}" for earlier in range(number)}
                for earlier in range(number):
                    assert await read_whole(instance, f"restart/{earlier}") == body(1000, earlier)
                await instance.put(f"restart/{number}", body(1000, number))

    @pytest.mark.asyncio
    async def test_a_store_that_cannot_be_opened_says_so_without_secrets(
        self, unopenable_store: WalObjectStore | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = _given(unopenable_store, "no place is known that this store cannot open (unopenable_store)")
        try:
            error = await self.failure_of("start", store.start)
            assert error is not None, "a start fails where the place cannot be used"
        finally:
            await store.stop()
        assert not any(secret in caplog.text for secret in self.secrets), "no secret is logged"

    @pytest.mark.asyncio
    async def test_a_call_of_a_stopped_store_raises_the_interfaces_error_if_it_fails(
        self, store: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        async with _running(store):
            back_door.write(KEY, b"data")
            assert await read_whole(store, KEY) == b"data"
        for name, call in _calls(store).items():
            error = await self.failure_of(name, call)
            assert not isinstance(error, ObjectNotFoundError), f"{name} of a stopped store says that nothing is there"
        assert back_door.read(KEY) in (b"data", b"new", None)

    @pytest.mark.asyncio
    async def test_a_stopped_store_leaves_no_thread_no_task_and_no_file_open(
        self, make_store: MakeObjectStore | None
    ) -> None:
        make_store = _given(make_store, "only one instance can be made of this store (make_store)")

        async def use() -> None:
            async with _running(make_store()) as store:
                for number in range(20):
                    await store.put(f"used/{number}", body(1000))
                async for _ in store.list("used/"):
                    break
                await store.get("used/1", 5, 10)
                cancelled = asyncio.create_task(store.put("used/cancelled", body(100_000)))
                await asyncio.sleep(0)
                cancelled.cancel()
                await asyncio.wait([cancelled])
                await store.delete([f"used/{number}" for number in range(20)])

        await use()
        held, tasks = Held(), asyncio.all_tasks()
        for _ in range(CYCLES):
            await use()
        left = await tasks_left(tasks)
        assert not left, f"a stopped store leaves no task: these go on: {left}"
        held.assert_no_more("a stopped store leaves no thread and no file open")

    # -- cancellation ---------------------------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_a_put_that_is_cancelled_takes_place_wholly_or_not_at_all(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        data = body(MEBIBYTE)
        keys = {f"cancelled/{turns}" for turns in range(CANCELLED_PUTS)}
        for turns in range(CANCELLED_PUTS):
            await _cancel_after(turns, started.put(f"cancelled/{turns}", data))
            found = await listed(started)
            left = set(found) - keys
            assert not left, f"a put that was cancelled leaves an object of another name: {left}"
            assert all(info.size_bytes == len(data) for info in found.values()), "a part of an object is listed"
        for key in sorted(keys):
            assert back_door.read(key) in (None, data), "a put that was cancelled leaves a part of the object"
        await started.put("cancelled/after", data)
        assert back_door.read("cancelled/after") == data

    @pytest.mark.asyncio
    async def test_nothing_is_written_or_deleted_once_the_store_has_stopped(
        self, store: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        """Neither what was cancelled nor what was under way then. What a service has received may still be done."""
        keys = [f"stopped/{number}" for number in range(CANCELLED_PUTS)]
        for key in keys[::2]:
            back_door.write(key, b"old")
        async with _running(store):
            for number, key in enumerate(keys):
                work = store.delete([key]) if number % 2 == 0 else store.put(key, b"new")
                await _cancel_after(number // 2 % 4, work)
        await asyncio.sleep(_LATE_S)
        left = {key: back_door.read(key) for key in keys}
        await asyncio.sleep(_LATE_S)
        now = {key: back_door.read(key) for key in keys}
        assert now == left, "work that was cancelled goes on when the store is stopped"

    # -- power cuts -----------------------------------------------------------------------------------------------

    @pytest.mark.asyncio
    async def test_a_put_that_returned_is_there_after_a_power_cut(
        self, make_store: MakeObjectStore | None, synced_files: SyncedFiles | None
    ) -> None:
        make_store, watched = _cutting(make_store, synced_files)
        objects = {
            f"cut/{number % 3}/{number}": body(size, number) for number, size in enumerate((1, 100, 5000, 70_000))
        }
        images = []
        with watched as files:
            async with _running(make_store()) as store:
                for key, data in objects.items():
                    await store.put(key, data)
                    images.append(_files_of(files.durable()))
            for count, image in enumerate(images, 1):
                files.leave(image)
                async with _running(make_store()) as store:
                    found = await listed(store)
                    for key, data in list(objects.items())[:count]:
                        is_there = key in found and await read_whole(store, key) == data
                        assert is_there, "an object that put returned for was lost in a power cut"

    @pytest.mark.asyncio
    async def test_an_object_that_a_power_cut_tears_is_there_wholly_or_not_at_all(
        self, make_store: MakeObjectStore | None, synced_files: SyncedFiles | None
    ) -> None:
        make_store, watched = _cutting(make_store, synced_files)
        old, new = body(60_000), body(90_000)  # the new one begins as the old one: half of it is another one
        with watched as files:
            async with _running(make_store()) as store:
                await store.put("torn/old", old)
                torn = []
                for key in ("torn/new", "torn/old"):
                    files.tear_at_next_sync()
                    await store.put(key, new)
                    torn.append(_files_of(files.torn()))
            for image in torn:
                files.leave(image)
                async with _running(make_store()) as store:
                    there = {key: await read_whole(store, key) for key in await listed(store)}
                    assert there.get("torn/old") in (old, new), "an object was there in part after a power cut"
                    assert there.get("torn/new") in (None, new), "an object was there in part after a power cut"
                    others = set(there) - {"torn/old", "torn/new"}
                    assert not others, f"a power cut leaves objects of other names: {others}"

    @pytest.mark.asyncio
    async def test_what_was_deleted_does_not_come_back_after_a_power_cut(
        self, make_store: MakeObjectStore | None, synced_files: SyncedFiles | None
    ) -> None:
        make_store, watched = _cutting(make_store, synced_files)
        with watched as files:
            async with _running(make_store()) as store:
                for key in ("cut/a", "cut/b", "cut/c"):
                    await store.put(key, b"data")
                gone = set(await store.delete(["cut/a", "cut/b"]))
                image = _files_of(files.durable())
            files.leave(image)
            async with _running(make_store()) as store:
                back = gone & set(await listed(store))
                assert not back, f"objects that were said to be surely gone are back after a power cut: {back}"
                assert await read_whole(store, "cut/c") == b"data"

    async def failure_of(self, name: str, call: Callable[[], Awaitable[object]]) -> WalObjectStoreError | None:
        """What a call raises, if it does: the interface's own error, with a message without secrets."""
        try:
            async with within(f"{name} ends"):
                await call()
        except WalObjectStoreError as error:
            failure = error
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{name} raises a WalObjectStoreError, and not {error!r}") from error
        else:
            return None
        link: BaseException | None = failure
        while link is not None:
            assert not any(secret in str(link) for secret in self.secrets), f"a message of {name} has a secret"
            link = link.__cause__
        assert str(failure), f"the message of {name} says what to do"
        return failure


def _calls(store: WalObjectStore) -> dict[str, Callable[[], Awaitable[object]]]:
    """A call of each method; that of `delete` fails if it says of nothing that it is gone."""

    async def delete() -> None:
        if not await store.delete([KEY]):
            raise WalObjectStoreError("delete says of no object that it is gone")

    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "get": lambda: store.get(KEY, 0, 10),
        "get of nothing": lambda: store.get(KEY, 0, 0),
        "list": lambda: listed(store),
        "put": lambda: store.put(KEY, b"new"),
        "delete": delete,
    }
    if isinstance(store, ConditionalObjectStore):
        calls = {
            "get_versioned": lambda: store.get_versioned(KEY),
            "create": lambda: store.create(f"{KEY}-created", b"new"),
            "replace": lambda: store.replace(KEY, b"new", "some-version"),
            **calls,
        }
    return calls


def _given(fixture: T | None, reason: str) -> T:
    if fixture is None:
        pytest.skip(reason)
    return fixture


def _cutting(make_store: MakeObjectStore | None, files: SyncedFiles | None) -> tuple[MakeObjectStore, SyncedFiles]:
    reason = "this store syncs no files of its own (synced_files, make_store)"
    return _given(make_store, reason), _given(files, reason)


def _files_of(image: Image) -> Image:
    """Without empty files: a folder that was never synced itself looks like one."""
    return {path: content for path, content in image.items() if content}


async def _cancel_after(turns: int, work: Awaitable[object]) -> None:
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    if turns % 4 == 3:
        await asyncio.sleep(turns / 4000)  # threads and services need more than turns
    task.cancel()
    await asyncio.wait([task])


@asynccontextmanager
async def _running(store: WalObjectStore) -> AsyncIterator[WalObjectStore]:
    await store.start()
    try:
        yield store
    finally:
        await store.stop()
