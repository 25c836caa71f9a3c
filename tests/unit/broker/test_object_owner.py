"""Whose objects a broker finds, and what it does then."""

from __future__ import annotations

import pytest

from diskless_core.broker.errors import StartError
from diskless_core.broker.object_owner import ObjectOwner
from diskless_core.clock import SystemClock
from diskless_core.testing.fakes.objects import MemoryWalObjectStore

KEY = "wal-snapshots/cluster"


class SharedObjects(MemoryWalObjectStore):
    """A store that others see, too."""

    is_process_local = False


def store_with(owner: str | None = None, *, has_objects: bool = False) -> SharedObjects:
    store = SharedObjects(SystemClock())
    if owner is not None:
        store.objects[KEY] = owner.encode()
    if has_objects:
        store.objects["wal/a"] = b"records"
    store.objects["walls/a"] = b"somebody else's"
    return store


def owner_of(store: MemoryWalObjectStore) -> ObjectOwner:
    return ObjectOwner(store, prefix="wal", beside="wal-snapshots")


async def test_the_first_start_says_whose_the_objects_are() -> None:
    store = store_with()
    await owner_of(store).require_nobody()
    await owner_of(store).require("ours", has_topics=False)
    assert store.objects[KEY] == b"ours"
    store.objects["wal/a"] = b"records"
    for has_topics in (True, False):
        await owner_of(store).require("ours", has_topics=has_topics)
    assert store.objects[KEY] == b"ours"


@pytest.mark.parametrize(
    ("owner", "has_objects", "who"),
    [("theirs", True, "the cluster theirs"), ("theirs", False, "the cluster theirs"), (None, True, "a cluster")],
)
async def test_an_empty_log_is_not_that_of_objects_that_are_there(
    owner: str | None, has_objects: bool, who: str
) -> None:
    store = store_with(owner, has_objects=has_objects)
    before = dict(store.objects)
    with pytest.raises(
        StartError, match=f"the log knows of no objects, and below wal/ there are the objects of {who} whose log"
    ):
        await owner_of(store).require_nobody()
    assert store.objects == before


@pytest.mark.parametrize("has_topics", [True, False])
@pytest.mark.parametrize("has_objects", [True, False])
async def test_another_clusters_objects_are_left_alone(has_objects: bool, has_topics: bool) -> None:
    store = store_with("theirs", has_objects=has_objects)
    before = dict(store.objects)
    with pytest.raises(StartError, match="are those of the cluster theirs, and the log is that of the cluster ours"):
        await owner_of(store).require("ours", has_topics=has_topics)
    assert store.objects == before


@pytest.mark.parametrize("has_objects", [True, False])
async def test_a_cluster_with_topics_finds_that_its_objects_are_elsewhere(has_objects: bool) -> None:
    store = store_with(has_objects=has_objects)
    before = dict(store.objects)
    with pytest.raises(StartError, match="which has topics, and no object wal-snapshots/cluster says"):
        await owner_of(store).require("ours", has_topics=True)
    assert store.objects == before


async def test_objects_that_nobody_has_named_are_not_taken() -> None:
    store = store_with(has_objects=True)
    with pytest.raises(StartError, match="the objects of a cluster whose log is not here"):
        await owner_of(store).require("ours", has_topics=False)


async def test_what_only_this_process_sees_is_nobody_elses() -> None:
    store = MemoryWalObjectStore(SystemClock())
    await owner_of(store).require_nobody()
    await owner_of(store).require("ours", has_topics=True)
    assert store.objects == {}


async def test_brokers_of_one_cluster_may_start_at_once() -> None:
    """Between its first look and its second, another one has begun and has written."""
    store = store_with()
    looked = store.get

    async def get_before_another_begins(key: str, start: int, end: int) -> bytes:
        store.get = looked  # type: ignore[method-assign]
        try:
            return bytes(await looked(key, start, end))
        finally:
            store.objects |= {KEY: b"ours", "wal/a": b"records"}

    store.get = get_before_another_begins  # type: ignore[method-assign]
    await owner_of(store).require("ours", has_topics=False)
    assert store.objects[KEY] == b"ours"
