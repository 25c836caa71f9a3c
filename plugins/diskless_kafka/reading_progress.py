"""Who waits for the reader of the metadata topic to come to some offset. For one event loop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError


class _Waiter(NamedTuple):
    offset: int
    reached: asyncio.Future[None]


class ReadingProgress:
    """How far the topic was read.

    Args:
        positions: the offset that is to be read next, by partition; somebody else moves them.
        wait_s: how long is waited, in seconds.
    """

    def __init__(self, positions: Mapping[int, int], wait_s: float) -> None:
        self._positions = positions
        self._wait_s = wait_s
        self._waiters: dict[int, list[_Waiter]] = defaultdict(list)
        self._required: dict[int, int] = {}
        self._failure: RemoteLogMetadataError | None = None

    async def reach(self, partition: int, offset: int) -> None:
        """Wait until everything below an offset was read.

        Raises:
            RemoteLogMetadataError: it takes too long, or nothing is read any more.
        """
        if self._failure is not None:
            raise self._failure
        if self._positions[partition] >= offset:
            return
        waiter = _Waiter(offset, asyncio.get_running_loop().create_future())
        self._waiters[partition].append(waiter)
        try:
            async with asyncio.timeout(self._wait_s):
                await waiter.reached
        except TimeoutError as error:
            raise RemoteLogMetadataError(
                f"the metadata topic's partition {partition} is read up to offset {self._positions[partition]}, and "
                f"not to {offset} within {self._wait_s} s"
            ) from error
        finally:
            self._waiters[partition].remove(waiter)

    def moved(self) -> None:
        """The positions have moved."""
        for partition, waiters in self._waiters.items():
            for waiter in waiters:
                if self._positions[partition] >= waiter.offset and not waiter.reached.done():
                    waiter.reached.set_result(None)

    def require(self, partition: int, offset: int) -> None:
        """Let nobody rely on a partition before everything below an offset was read."""
        self._required[partition] = offset

    def check(self, partition: int) -> None:
        """See that a partition was read as far as is required.

        Raises:
            RemoteLogMetadataError: it was not, or nothing is read any more.
        """
        if self._failure is not None:
            raise self._failure
        if self._positions[partition] < self._required.get(partition, 0):
            raise RemoteLogMetadataError(f"the metadata topic's partition {partition} is being read from its start")

    def fail(self, error: RemoteLogMetadataError) -> None:
        """Nothing is read any more."""
        self._failure = error
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.reached.done():
                    waiter.reached.set_exception(error)
