"""Remote storage that is away when a broker starts."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from diskless_core.config.tiering import TieringConfig
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, access_denied, unavailable
from diskless_core.testing.remote_storage_tools import copied, make_segment, read_log
from diskless_core.tiering.awaited_storage import ANSWER_S, AwaitedRemoteStorage
from diskless_core.tiering.retrying import Retries
from tests.support.virtual_time import VirtualClock, run


class LateStorage(MemoryRemoteStorage):
    """One that starts when all its errors have been raised, and answers from `answers_at` on, in seconds."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = deque(errors)
        self.starts = 0
        self.is_stopped = False
        self.answers_at = 0.0

    async def start(self) -> None:
        self.starts += 1
        await asyncio.sleep(max(0.0, self.answers_at - asyncio.get_running_loop().time()))
        if self.errors:
            raise self.errors.popleft()

    async def stop(self) -> None:
        self.is_stopped = True


def awaited(storage: LateStorage) -> AwaitedRemoteStorage:
    clock = VirtualClock(asyncio.get_running_loop())
    return AwaitedRemoteStorage(storage, Retries(TieringConfig(), clock))


def test_a_storage_that_cannot_be_reached_is_started_as_soon_as_it_can_be() -> None:
    async def main() -> None:
        inner = LateStorage(unavailable(), unavailable())
        storage = awaited(inner)
        await storage.start()
        segment = make_segment()
        for call in (
            storage.copy(segment.metadata, segment.data()),
            storage.fetch(segment.metadata, 0, 1),
            storage.delete(segment.metadata),
        ):
            with pytest.raises(RemoteStorageError, match="remote_storage: 503 Service Unavailable") as caught:
                await call
            assert caught.value.retriable
        await asyncio.sleep(5)
        assert inner.starts == 3
        assert await read_log(storage, await copied(storage, segment)) == segment.log
        await storage.stop()
        assert inner.is_stopped

    run(main)


def test_an_error_that_no_retry_helps_ends_the_start_and_says_whose_it_is() -> None:
    async def main() -> None:
        inner = LateStorage(access_denied())
        with pytest.raises(RemoteStorageError, match="remote_storage: 403 AccessDenied") as caught:
            await awaited(inner).start()
        assert not caught.value.retriable
        await asyncio.sleep(100)
        assert inner.starts == 1

    run(main)


@pytest.mark.parametrize("answer", [None, unavailable()])
def test_one_that_does_not_answer_holds_up_no_start(answer: Exception | None) -> None:
    async def main() -> None:
        inner = LateStorage(*[] if answer is None else [answer])
        inner.answers_at = 60
        storage = awaited(inner)
        await storage.start()
        assert asyncio.get_running_loop().time() == ANSWER_S
        with pytest.raises(RemoteStorageError, match="remote_storage: it does not answer") as caught:
            await storage.delete(make_segment().metadata)
        assert caught.value.retriable
        await asyncio.sleep(60)
        assert inner.starts == (1 if answer is None else 2)
        await storage.delete(make_segment().metadata)
        await storage.stop()

    run(main)


def test_a_start_that_is_broken_off_asks_no_more() -> None:
    async def main() -> None:
        inner = LateStorage()
        inner.answers_at = 60
        before = asyncio.all_tasks()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(awaited(inner).start(), 1)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    run(main)


def test_what_comes_after_an_outage_ends_no_attempts() -> None:
    async def main() -> None:
        inner = LateStorage(unavailable(), access_denied(), RuntimeError("a defect"))
        storage = awaited(inner)
        await storage.start()
        await asyncio.sleep(0.7)
        with pytest.raises(RemoteStorageError, match="403 AccessDenied"):
            await storage.delete(make_segment().metadata)
        await asyncio.sleep(10)
        await storage.delete(make_segment().metadata)

    run(main)


def test_a_storage_that_never_comes_is_tried_ever_less_often_and_holds_up_no_stop() -> None:
    async def main() -> None:
        inner = LateStorage(*[unavailable()] * 1000)
        storage = awaited(inner)
        await storage.start()
        await asyncio.sleep(3600)
        assert 100 < inner.starts < 200
        await storage.stop()
        started = inner.starts
        await asyncio.sleep(3600)
        assert inner.starts == started

    run(main)
