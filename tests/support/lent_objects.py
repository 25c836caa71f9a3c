"""A WAL object store of this process that other processes can read, faults and all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, WalObjectStore
from diskless_core.testing.fakes.objects import MemoryWalObjectStore


@dataclass(frozen=True)
class LentObjects:
    """Makes stores that ask the one that is lent. It can be pickled."""

    address: str

    def __call__(self) -> WalObjectStore:
        return _Borrowed(self.address)


class _Borrowed(WalObjectStore):
    is_node_local = True
    is_process_local = False

    def __init__(self, address: str) -> None:
        self._address = address

    async def start(self) -> None:
        """Each request connects."""

    async def stop(self) -> None:
        """Nothing is held."""

    async def put(self, key: str, data: ObjectData) -> None:
        raise AssertionError("it is lent for reading")

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        raise AssertionError("it is lent for reading")

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        data: bytes = await asyncio.to_thread(self._ask, "get", key, start, end)
        return data

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        for page in await asyncio.to_thread(self._ask, "list", prefix):
            yield page

    def _ask(self, *question: Any) -> Any:
        with Client(self._address) as connection:
            connection.send(question)
            answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def lent(objects: MemoryWalObjectStore, folder: Path) -> Iterator[LentObjects]:
    """Lend a store for as long as the context lasts, by a socket in `folder`."""
    address = str(folder / "objects.sock")
    with Listener(address, backlog=64) as listener:
        lending = threading.Thread(target=_lend, args=(listener, objects), name="lends objects")
        lending.start()
        try:
            yield LentObjects(address)
        finally:
            with Client(address) as connection:
                connection.send(None)
            lending.join()


def _lend(listener: Listener, objects: MemoryWalObjectStore) -> None:
    while True:
        with listener.accept() as connection:
            question = connection.recv()
            if question is None:
                return
            try:
                answer: Any = asyncio.run(_answer(objects, *question))
            except Exception as error:
                answer = error
            connection.send(answer)


async def _answer(objects: MemoryWalObjectStore, operation: str, *arguments: Any) -> Any:
    if operation == "list":
        return [page async for page in objects.list(*arguments)]
    return await objects.get(*arguments)
