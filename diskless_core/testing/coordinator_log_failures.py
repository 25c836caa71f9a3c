"""The part of the `coordinator_log` contract about power cuts, failed starts, the event loop, and what stays behind."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.shards import DISKLESS
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    TIMEOUT_S,
    MakeLog,
    batch_of,
    numbered_batches,
    read_all,
    read_batches,
    same_content,
    started,
)
from diskless_core.testing.leaks import CYCLES, Held, tasks_left
from diskless_core.testing.loop_stalls import SOME_CALLS, assert_loop_goes_on
from diskless_core.testing.patience import within
from diskless_core.testing.power_cut import SyncedFiles


@pytest.mark.asyncio
class LogFailureContract:
    """What holds when something fails or ends; `CoordinatorLogContract` includes it.

    Attributes:
        secrets: what was configured and must be in no message, such as a password.
    """

    secrets: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def make_log(self) -> MakeLog:
        """As that of `LogLifeContract`."""
        raise NotImplementedError("give the suite a fixture make_log")

    @pytest.fixture
    def synced_files(self) -> SyncedFiles | None:
        """Watches over the folder that the log of `make_log` writes to; None skips the tests that cut the power.

        For a log that syncs its files itself, with `os.fsync` or `os.fdatasync`, before it acknowledges an append.
        """
        return None

    @pytest.fixture
    def make_unopenable_log(self) -> MakeLog | None:
        """Makes instances that cannot be started, with settings that have the `secrets`; None skips the test.

        Their folder is a file, or nobody is where their backend should be.
        """
        return None

    async def test_an_append_that_returned_is_there_after_a_power_cut(
        self, make_log: MakeLog, synced_files: SyncedFiles | None
    ) -> None:
        if synced_files is None:
            pytest.skip("this log syncs no files of its own")
        batches = numbered_batches(30)
        shards = (SHARD, OTHER_SHARD)
        left = {}
        with synced_files as files:
            async with started(make_log()) as log:
                for count, batch in enumerate(batches, 1):
                    for shard in shards:
                        await log.append(shard, [batch])
                        if count in (1, 2, 3, len(batches)):
                            left[count, shard] = files.durable()
            for (count, last), image in left.items():
                files.leave(image)
                async with started(make_log()) as log:
                    for shard in shards:
                        there = count if shard <= last else count - 1
                        entries = await read_all(log, shard)
                        is_lost = not same_content(entries[:there], batches[:there])
                        assert not is_lost, "an entry that append returned was lost in a power cut"
                        (offset,) = await log.append(shard, [batch_of(b"on")])
                        given_again = entries and offset < entries[-1].next_offset
                        assert not given_again, "an offset was given out again after a power cut"

    async def test_an_append_that_a_power_cut_tears_is_there_wholly_or_not_at_all(
        self, make_log: MakeLog, synced_files: SyncedFiles | None
    ) -> None:
        if synced_files is None:
            pytest.skip("this log syncs no files of its own")
        first, torn, behind = batch_of(b"first"), batch_of(bytes(range(256)) * 40), batch_of(b"behind")
        with synced_files as files:
            async with started(make_log()) as log:
                await log.append(SHARD, [first])
                files.tear_at_next_sync()
                await log.append(SHARD, [torn])
        for image in (files.torn(), files.torn_with_hole()):
            files.leave(image)
            async with started(make_log()) as log:
                before = await read_all(log, SHARD)
                whole = same_content(before, [first]) or same_content(before, [first, torn])
                assert whole, "a batch was there in part after a power cut"
                await log.append(SHARD, [behind])
            expected = [*[first, torn][: len(before)], behind]
            async with started(make_log()) as log:
                assert same_content(await read_all(log, SHARD), expected), (
                    "what is appended behind a torn batch is there when the log is opened again"
                )

    async def test_a_log_that_cannot_be_opened_says_so_without_secrets(
        self, make_unopenable_log: MakeLog | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        if make_unopenable_log is None:
            pytest.skip("no place is known that this log cannot open")
        log = make_unopenable_log()

        async def start() -> None:
            async with within("a start that fails ends"):
                await log.start()

        try:
            with pytest.raises(Exception) as failed:  # noqa: PT011 - which one it is, is looked at
                await start()
            error: BaseException | None = failed.value
            assert isinstance(error, CoordinatorLogError), f"a CoordinatorLogError is raised, and not {error!r}"
            while error is not None:
                assert not any(secret in str(error) for secret in self.secrets), "a message has no secret"
                error = error.__cause__
            assert not any(secret in caplog.text for secret in self.secrets), "no secret is logged"
        finally:
            await log.stop()

    async def test_a_call_that_fails_raises_the_interfaces_error(self, make_log: MakeLog) -> None:
        """Whatever the log makes of bytes that are no batch, and of a call after its end."""
        log = make_log()
        async with started(log):
            for broken in (b"", b"no batch", batch_of(b"a")[:40], bytes(100)):
                with pytest.raises(Exception) as failed:  # noqa: PT011 - which one it is, is looked at
                    await log.append(SHARD, [broken])
                assert isinstance(failed.value, CoordinatorLogError), f"not a CoordinatorLogError: {failed.value!r}"
        with pytest.raises(Exception) as failed:  # noqa: PT011
            await log.append(SHARD, [batch_of(b"late")])
        assert isinstance(failed.value, CoordinatorLogError), f"not a CoordinatorLogError: {failed.value!r}"

    @pytest.mark.parametrize("method", ["append", "bounds", "read", "prune"])
    async def test_the_event_loop_is_not_blocked(self, make_log: MakeLog, method: str) -> None:
        async with started(make_log()) as log, asyncio.timeout(TIMEOUT_S):
            offsets = [offset for batch in numbered_batches(32) for offset in await log.append(SHARD, [batch])]

            async def use() -> None:
                for number in range(SOME_CALLS):
                    match method:
                        case "append":
                            await log.append(SHARD, [batch_of(b"more")])
                        case "bounds":
                            await log.bounds(SHARD)
                        case "read":
                            await read_batches(log, SHARD, offsets[-1], 1)
                        case _:
                            await log.prune(SHARD, offsets[number])

            await assert_loop_goes_on(method, use)

    async def test_a_stopped_log_leaves_no_thread_no_task_and_no_file_open(self, make_log: MakeLog) -> None:
        async def use() -> None:
            async with started(make_log()) as log:
                for index in range(3):
                    await log.append(DISKLESS.shard(index), [batch_of(b"a")])
                await read_all(log, SHARD)
                await anext(log.leadership(SHARD))

        await use()
        held, tasks = Held(), asyncio.all_tasks()
        for _ in range(CYCLES):
            await use()
        left = await tasks_left(tasks)
        assert not left, f"a stopped log leaves no task: these go on: {left}"
        held.assert_no_more("a stopped log leaves no thread and no file open")
