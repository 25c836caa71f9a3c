"""What the uploader tells of a store that refuses writes."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.produce.uploader import FAILING_S, Uploader
from tests.support.virtual_time import VirtualClock, run

DATA = memoryview(b"object")


class RefusingStore:
    """Raises its error, if it has one; a put takes a second."""

    may_put_twice = False

    def __init__(self):
        self.error = None

    async def put(self, _key, _data):
        await asyncio.sleep(1)
        if self.error is not None:
            raise self.error


def uploading():
    store = RefusingStore()
    return store, Uploader(store, 4, VirtualClock(asyncio.get_running_loop()), Metrics())


async def refused(store, uploader):
    store.error = WalObjectStoreError("403 Forbidden", retriable=False)
    with pytest.raises(WalObjectStoreError):
        await uploader.upload("key", DATA)


def test_a_store_that_refuses_for_good_is_told_until_a_write_succeeds():
    async def scenario():
        store, uploader = uploading()
        assert uploader.failing is None
        await refused(store, uploader)
        assert uploader.failing == "403 Forbidden"
        store.error = None
        await uploader.upload("key", DATA)
        assert uploader.failing is None

    run(scenario)


def test_a_failure_is_forgotten_after_a_while_without_uploads():
    async def scenario():
        store, uploader = uploading()
        await refused(store, uploader)
        await asyncio.sleep(FAILING_S - 0.1)
        assert uploader.failing == "403 Forbidden"
        await asyncio.sleep(0.2)
        assert uploader.failing is None
        await refused(store, uploader)
        assert uploader.failing == "403 Forbidden"

    run(scenario)


def test_a_failure_is_told_for_as_long_as_uploads_are_tried_again():
    async def scenario():
        store, uploader = uploading()
        store.error = WalObjectStoreError("503 Slow Down")
        upload = asyncio.create_task(uploader.upload("key", DATA))
        await asyncio.sleep(10 * FAILING_S)
        assert (uploader.in_flight, uploader.failing) == (1, "503 Slow Down")
        store.error = None
        await upload
        assert uploader.failing is None

    run(scenario)


def test_a_write_without_an_answer_is_told_until_it_has_one():
    async def scenario():
        store, uploader = uploading()
        answers = asyncio.Event()
        store.put = lambda *_: answers.wait()
        upload = asyncio.create_task(uploader.upload("key", DATA))
        await asyncio.sleep(FAILING_S - 0.1)
        assert uploader.failing is None
        await asyncio.sleep(5)
        assert uploader.failing == "a write has had no answer for 15 s"
        answers.set()
        await upload
        assert uploader.failing is None

    run(scenario)


def test_when_the_store_takes_one_write_the_others_are_tried_again_at_once():
    async def scenario():
        store, uploader = uploading()
        store.error = WalObjectStoreError("503 Slow Down")
        uploads = [asyncio.create_task(uploader.upload(f"key {number}", DATA)) for number in range(4)]
        await asyncio.sleep(60)
        store.error = None
        await asyncio.wait(uploads, return_when=asyncio.FIRST_COMPLETED)
        first_s = asyncio.get_running_loop().time()
        await asyncio.gather(*uploads)
        assert asyncio.get_running_loop().time() - first_s <= 1.0, "a put takes a second"

    run(scenario)
