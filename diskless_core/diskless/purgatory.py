"""Fetches that wait for more data: woken as soon as a commit to one of their partitions is known to the node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from diskless_core.diskless.commands import PartitionKey


class Purgatory:
    """Waiters by partition.

    Attributes:
        changes: how often something has changed, in any partition.
    """

    def __init__(self) -> None:
        self._waiters: dict[PartitionKey, dict[Watch, None]] = {}  # in order: a set's would change from run to run
        self._closed = False
        self.changes = 0

    def wake(self, partitions: Iterable[PartitionKey]) -> None:
        """Something changed in these partitions."""
        self.changes += 1
        for partition in partitions:
            for watch in self._waiters.get(partition, ()):
                watch.notice(partition)

    def close(self) -> None:
        """Let everybody go who waits, now and from now on."""
        self._closed = True
        for watches in self._waiters.values():
            for watch in watches:
                watch.notice()

    def watch(self, partitions: Sequence[PartitionKey], since: int) -> Watch:
        """Begin to watch partitions; use it as a context manager. What happened after `since` is not missed.

        A search that finds enough then costs nothing here, and one that does not need not be repeated before the wait.

        Args:
            since: what `changes` was before these partitions were looked at. If anything has changed by now, here or in
                other partitions, the first wait is over at once.
        """
        watch = Watch(self, partitions)
        if self.changes != since:
            watch.notice()
        return watch

    def add(self, watch: Watch, partitions: Sequence[PartitionKey]) -> None:
        for partition in partitions:
            self._waiters.setdefault(partition, {})[watch] = None

    def remove(self, watch: Watch, partitions: Sequence[PartitionKey]) -> None:
        for partition in partitions:
            watches = self._waiters.get(partition)
            if watches is not None:
                watches.pop(watch, None)
                if not watches:
                    del self._waiters[partition]

    def is_awaited(self, partition: PartitionKey) -> bool:
        """Whether anybody waits for a partition."""
        return partition in self._waiters

    @property
    def is_closed(self) -> bool:
        return self._closed


class Watch:
    """One waiter's interest in some partitions."""

    def __init__(self, purgatory: Purgatory, partitions: Sequence[PartitionKey]) -> None:
        self._purgatory = purgatory
        self._partitions = partitions
        self._event = asyncio.Event()
        self._woken: dict[PartitionKey, None] = {}

    def __enter__(self) -> Watch:
        self._purgatory.add(self, self._partitions)
        return self

    def __exit__(self, *_: object) -> None:
        self._purgatory.remove(self, self._partitions)

    def notice(self, partition: PartitionKey | None = None) -> None:
        """Something changed, in a partition or before the watch began."""
        if partition is not None:
            self._woken[partition] = None
        self._event.set()

    def woken(self) -> list[PartitionKey]:
        """The partitions in which something has changed since the last call, or since the watch began."""
        woken, self._woken = self._woken, {}
        return list(woken)

    async def wait(self, seconds: float) -> bool:
        """Wait for a change since the last call, or since the watch began; False when the time is over."""
        if self._purgatory.is_closed:
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
