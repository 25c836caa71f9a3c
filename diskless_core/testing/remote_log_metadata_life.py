"""The part of the `remote_log_metadata` contract about failures, cancellation, the event loop, and stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

import pytest

from diskless_core.plugin.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.remote_log.metadata import RemotePartitionDeleteState, TopicIdPartition
from diskless_core.testing.leaks import CYCLES, Held, tasks_left
from diskless_core.testing.loop_stalls import SOME_CALLS, assert_loop_goes_on
from diskless_core.testing.patience import within
from diskless_core.testing.remote_log_metadata_lookups import FINISHED, MakeMetadata, SegmentLookupContract
from diskless_core.testing.remote_log_metadata_tools import (
    TIMEOUT_S,
    copies_found,
    copies_listed,
    deletion,
    finished,
    segment,
    update,
)

MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED

BreakMetadata = Callable[[RemoteLogMetadata], AbstractAsyncContextManager[None]]
"""While it lasts, the backend of this started instance answers with errors, or is not there."""

METHODS = ("add", "update", "update_partition", "find", "highest_offset", "list", "deleting_partitions")


@pytest.mark.asyncio
class MetadataLifeContract(SegmentLookupContract):
    """What holds when something fails or ends; `RemoteLogMetadataContract` includes it.

    Attributes:
        secrets: what was configured and must be in no message, such as a password.
    """

    secrets: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def make_unreachable_metadata(self) -> MakeMetadata | None:
        """Makes instances whose backend is not there, with settings that have the `secrets`; None skips the test."""
        return None

    @pytest.fixture
    def break_metadata(self) -> BreakMetadata | None:
        """Lets the backend of an instance fail for a while; None skips the test that needs it."""
        return None

    async def test_a_backend_that_cannot_be_reached_is_told_without_secrets(
        self,
        make_unreachable_metadata: MakeMetadata | None,
        services: RemoteLogMetadataServices,
        partition: TopicIdPartition,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Where it starts all the same, and connects later, its calls say so."""
        if make_unreachable_metadata is None:
            pytest.skip("no backend of this plugin is known to be unreachable")
        made = make_unreachable_metadata()

        async def use() -> None:
            async with within("a start or a call that fails ends"):
                await made.start(services)
                await made.list(partition)

        try:
            with pytest.raises(Exception) as failed:  # noqa: PT011 - which one it is, is looked at
                await use()
            self.assert_own_error(failed.value)
            assert not any(secret in caplog.text for secret in self.secrets), "no secret is logged"
        finally:
            await made.stop()

    @pytest.mark.parametrize("method", METHODS)
    async def test_a_call_that_the_backend_fails_raises_the_interfaces_error_and_can_be_repeated(
        self,
        metadata: RemoteLogMetadata,
        break_metadata: BreakMetadata | None,
        partition: TopicIdPartition,
        method: str,
    ) -> None:
        """It raises, or answers from what it knows; it may have been noted."""
        if break_metadata is None:
            pytest.skip("the backend of this plugin cannot be made to fail")
        call = _call(metadata, partition, method)
        await metadata.add(segment(1, 0, 9, partition=partition))
        async with break_metadata(metadata), within("a call that the backend fails ends"):
            try:
                await call()
            except Exception as error:
                self.assert_own_error(error)
        async with within("a call succeeds once the backend answers again"):
            await call()
            assert await copies_listed(metadata, partition) == ([1, 2] if method == "add" else [1])

    def assert_own_error(self, error: BaseException) -> None:
        """It is one of the interface, and has no secret."""
        assert isinstance(error, RemoteLogMetadataError), f"a RemoteLogMetadataError is raised, and not {error!r}"
        seen: BaseException | None = error
        while seen is not None:
            for secret in self.secrets:
                assert secret not in str(seen), "a message has no secret"
            seen = seen.__cause__

    async def test_a_cancelled_call_is_done_wholly_or_not_at_all_and_holds_nobody_up(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        begun = [segment(copy, copy * 10, copy * 10 + 9, partition=partition) for copy in range(6)]
        for turns, one in enumerate(begun):
            await self._cancel(metadata.add(one), turns)
            async with within("a call ends that comes after a cancelled one"):
                await metadata.add(one)
            await self._cancel(metadata.update(update(one, FINISHED)), turns)
            async with within("a call ends that comes after a cancelled one"):
                await metadata.update(update(one, FINISHED))
        assert await copies_listed(metadata, partition) == list(range(6))
        assert await copies_found(metadata, partition, 0, [5, 15, 25, 35, 45, 55]) == list(range(6))

    async def _cancel(self, call: Awaitable[None], turns: int) -> None:
        task = asyncio.ensure_future(call)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        async with within("a call that is cancelled ends"):
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    @pytest.mark.parametrize("method", METHODS)
    async def test_the_event_loop_is_not_blocked(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition, method: str
    ) -> None:
        await finished(metadata, segment(1, 0, 9), partition)
        call = _call(metadata, partition, method)

        async def use() -> None:
            for _ in range(SOME_CALLS):
                await call()

        async with asyncio.timeout(TIMEOUT_S):
            await assert_loop_goes_on(method, use)

    async def test_a_stopped_instance_leaves_no_thread_no_task_and_no_connection(
        self, make_metadata: MakeMetadata, services: RemoteLogMetadataServices, partition: TopicIdPartition
    ) -> None:
        async def use(copy: int) -> None:
            made = make_metadata()
            await made.start(services)
            await finished(made, segment(copy, copy * 10, copy * 10 + 9), partition)
            await copies_listed(made, partition)
            async with within("a stop ends"):
                await made.stop()

        await use(0)
        held, tasks = Held(), asyncio.all_tasks()
        for copy in range(1, 1 + CYCLES):
            await use(copy)
        left = await tasks_left(tasks)
        assert not left, f"a stopped instance leaves no task: these go on: {left}"
        held.assert_no_more("a stopped instance leaves no thread and no connection")


def _call(metadata: RemoteLogMetadata, partition: TopicIdPartition, method: str) -> Callable[[], Awaitable[object]]:
    """A call of the method that can be repeated, of a partition to which copy 1 was added."""
    match method:
        case "add":
            return lambda: metadata.add(segment(2, 10, 19, partition=partition))
        case "update":
            return lambda: metadata.update(update(segment(1, 0, 9, partition=partition), FINISHED))
        case "update_partition":
            return lambda: metadata.update_partition(deletion(MARKED, partition))
        case "find":
            return lambda: metadata.find(partition, 0, 5)
        case "highest_offset":
            return lambda: metadata.highest_offset(partition, 0)
        case "list":
            return lambda: metadata.list(partition)
        case _:
            return metadata.deleting_partitions
