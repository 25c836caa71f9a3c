"""Compares clients of S3 on one server: what `wal_object_store=fsspec` uses, and obstore.

`python -m tests.benchmarks.object_clients` prints the figures. Each client has a process of its own, whose CPU time is
counted; the server's is not. What is moved is what a broker moves: objects of 8 MiB, several at once, whole and in
ranges.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import uvloop

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import ConditionalObjectStore
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.factory import make_store
from tests.support.relay import Relay
from tests.support.versitygw import ACCESS_KEY, REGION, SECRET_KEY, VersityGateway

MIB = 1 << 20
OBJECT_BYTES = 8 * MIB
OBJECTS = 32
AT_ONCE = 4
RANGE_BYTES = MIB
WARM_UP_OBJECTS = 8
BUCKET = "bucket"


class Client(Protocol):
    """What is measured of a client."""

    async def put(self, key: str, data: memoryview) -> object: ...

    async def get(self, key: str, start: int, end: int) -> object: ...

    async def create(self, key: str, data: memoryview) -> object: ...

    async def stop(self) -> None: ...


class Figures(NamedTuple):
    """MB/s, CPU seconds of the client's process for each GiB, and how long a cancelled put took to end."""

    put_mb_s: float
    put_cpu: float
    get_mb_s: float
    get_cpu: float
    range_mb_s: float
    range_cpu: float
    cancel_ms: float
    created_at_once: int


class Obstore:
    """The calls of obstore that a store would make."""

    def __init__(self, url: str) -> None:
        from obstore.store import S3Store

        self._store = S3Store(
            BUCKET,
            endpoint=url,
            region=REGION,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True, "timeout": "300s"},
            retry_config={"max_retries": 0},
        )

    async def put(self, key: str, data: memoryview) -> object:
        # The copy is needed: a cancelled put may still be sending when its caller has the memory back.
        return await self._store.put_async(key, bytes(data), use_multipart=False)

    async def get(self, key: str, start: int, end: int) -> object:
        return await self._store.get_range_async(key, start=start, end=end)

    async def create(self, key: str, data: memoryview) -> object:
        return await self._store.put_async(key, bytes(data), mode="create")

    async def stop(self) -> None:
        """It has nothing to release."""


async def make_client(name: str, url: str) -> Client:
    """A client, connected."""
    if name == "obstore":
        return Obstore(url)
    context = PluginContext(node_id=1, data_dir=Path(), log_dir=Path(), clock=SystemClock())
    settings = FsspecSettings(
        url=f"s3://{BUCKET}",
        endpoint_url=url,
        region=REGION,
        key=ACCESS_KEY,
        secret=SECRET_KEY,
        request_timeout_ms=300_000,
    )
    store: Any = make_store(context, settings)
    assert isinstance(store, ConditionalObjectStore)
    await store.start()
    return store


async def moved(count: int, one: Callable[[int], Awaitable[object]]) -> None:
    """Do all, `AT_ONCE` at a time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def timed(count: int, size: int, one: Callable[[int], Awaitable[object]]) -> tuple[float, float]:
    """MB/s, and CPU seconds for each GiB."""
    began, cpu = time.perf_counter(), time.process_time()
    await moved(count, one)
    total = count * size
    return total / 1e6 / (time.perf_counter() - began), (time.process_time() - cpu) / (total / (1 << 30))


async def measure_client(name: str, port: int) -> Figures:
    client = await make_client(name, f"http://127.0.0.1:{port}")
    data = memoryview(bytearray(b"some bytes of an object " * (OBJECT_BYTES // 24 + 1)))[:OBJECT_BYTES]
    ranges = OBJECT_BYTES // RANGE_BYTES

    async def get_range(number: int) -> None:
        start = number % ranges * RANGE_BYTES
        await client.get(f"{name}/{number // ranges}", start, start + RANGE_BYTES)

    await moved(WARM_UP_OBJECTS, lambda number: client.put(f"{name}/{number}", data))
    put = await timed(OBJECTS, OBJECT_BYTES, lambda number: client.put(f"{name}/{number}", data))
    await moved(WARM_UP_OBJECTS, lambda number: client.get(f"{name}/{number}", 0, OBJECT_BYTES))
    get = await timed(OBJECTS, OBJECT_BYTES, lambda number: client.get(f"{name}/{number}", 0, OBJECT_BYTES))
    ranged = await timed(OBJECTS * ranges, RANGE_BYTES, get_range)
    once = f"{name}/{uuid.uuid4().hex}"
    outcomes = await asyncio.gather(
        *(client.create(once, data[: 1000 + writer]) for writer in range(8)), return_exceptions=True
    )
    created = sum(not isinstance(outcome, BaseException) for outcome in outcomes)
    await client.stop()
    with Relay(port) as relay:
        relay.pass_on()
        through = await make_client(name, relay.url)
        cancel_ms = await cancelled(through, relay, data)
        await through.stop()
    return Figures(*put, *get, *ranged, cancel_ms, created)


async def cancelled(client: Client, relay: Relay, data: memoryview) -> float:
    """Milliseconds until a put that hangs has ended once it is cancelled."""
    relay.hang()
    putting = asyncio.ensure_future(client.put("late", data))
    await asyncio.to_thread(relay.wait_until_held)
    began = time.perf_counter()
    putting.cancel()
    await asyncio.wait([putting])
    return (time.perf_counter() - began) * 1000


def measure_apart(name: str, port: int) -> Figures:
    return uvloop.run(measure_client(name, port))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = VersityGateway(Path(folder), BUCKET).start()
        try:
            for turn in range(2):
                for name in ("fsspec", "obstore"):
                    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                        figures = process.submit(measure_apart, name, server.port).result()
                        print(turn, name, *(f"{key}={value:.2f}" for key, value in figures._asdict().items()))
        finally:
            server.end()


if __name__ == "__main__":
    main()
