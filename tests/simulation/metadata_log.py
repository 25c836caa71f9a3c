"""The most lenient log of a simulated world: one `SharedLog`, with appends that outlive who asked for them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from diskless_core.plugin.shard import ShardId
from diskless_core.testing.fakes.log import AppendFault, FakeCoordinatorLog, SharedLog, SharedShard
from tests.simulation.logs import Host, Watcher
from tests.simulation.processes import later_outside, outside


class _WatchedShard(SharedShard):
    def __init__(self, shard: ShardId, watcher: Watcher) -> None:
        super().__init__()
        self._shard = shard
        self._watcher = watcher

    def append(self, batch: bytes) -> int:
        offset = super().append(batch)
        self._watcher(self._shard, self.entries[-1])
        return offset


class _Client(FakeCoordinatorLog):
    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        return await outside(super().append(shard, list(batches)))


class MetadataLog(SharedLog):
    """A `WorldLog` that nominates whomever it is told to, several at once too."""

    notices_the_dead = False

    def __init__(self, source: random.Random, watcher: Watcher, *, nominates_all_shards: bool) -> None:
        super().__init__(append_delay_s=self._delay_s, nominates_all_shards=nominates_all_shards)
        self.append_error = self._fate
        self.error_rate = 0.0
        self.slow_rate = 0.0
        self._random = source
        self._watcher = watcher

    def plugin(self, host: Host) -> FakeCoordinatorLog:
        return _Client(self, host.node_id)

    def end(self, shard: ShardId) -> int:
        return self.state(shard).end

    def nominates(self, shard: ShardId, node_id: int) -> bool:
        return self.hint(shard, node_id).node_id == node_id

    def nominate(self, shard: ShardId, leader: int, seen_by: Iterable[int] | None = None) -> None:
        self.set_leader(shard, leader, seen_by=seen_by)

    def state(self, shard: ShardId) -> SharedShard:
        found = self._shards.get(shard)
        if found is None:
            found = self._shards[shard] = _WatchedShard(shard, self._watcher)
        return found

    def land_all(self) -> None:
        for shard in list(self._shards):
            self.land_late_appends(shard)

    def _delay_s(self) -> float:
        slow = self._random.random() < self.slow_rate
        return self._random.uniform(0.3, 4.0) if slow else self._random.uniform(0.001, 0.01)

    def _fate(self, shard: ShardId, _node_id: int) -> AppendFault | None:
        if self._random.random() >= self.error_rate:
            return None
        fault = self._random.choice(list(AppendFault))
        if fault is AppendFault.APPENDED_LATER:
            later_outside(self._random.uniform(0.1, 10), self.land_late_appends, shard)
        return fault
