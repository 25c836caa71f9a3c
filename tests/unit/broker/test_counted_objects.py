"""Requests to an object store are counted by what they are for, and the store is otherwise as it was."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.broker.counted_objects import StoreUse, counted
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import ConditionalObjectStore, ConditionFailedError, ObjectNotFoundError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.virtual_time import VirtualClock, run


def test_requests_and_bytes_are_counted_by_use_and_operation() -> None:
    async def scenario() -> None:
        metrics = Metrics()
        memory = MemoryWalObjectStore(
            VirtualClock(asyncio.get_running_loop()), page_objects=2, requests_are_billed=True
        )
        store = counted(memory, metrics, StoreUse.LOG)
        assert isinstance(store, ConditionalObjectStore)
        assert store.requests_are_billed

        await store.start()
        await store.put("a", b"123")
        version = await store.create("b", b"12345")
        await store.replace("b", b"1", version)
        with pytest.raises(ConditionFailedError):
            await store.create("a", b"")
        await store.put("c", b"")
        assert await store.get("a", 1, 9) == b"23"
        assert (await store.get_versioned("b")).data == b"1"
        with pytest.raises(ObjectNotFoundError):
            await store.get("absent", 0, 1)
        assert [info.key async for page in store.list() for info in page] == ["a", "b", "c"]
        assert await store.delete(["a", "b"]) == ["a", "b"]

        def value(what: str, operation: str) -> float | None:
            labels = {"use": "log", "operation": operation}
            return metrics.registry.get_sample_value(f"diskless_object_store_{what}_total", labels)

        assert {one: value("requests", one) for one in ("put", "get", "list", "delete")} == {
            "put": 5,
            "get": 3,
            "list": 2,
            "delete": 1,
        }
        assert (value("bytes", "put"), value("bytes", "get")) == (9, 3)

    run(scenario)
