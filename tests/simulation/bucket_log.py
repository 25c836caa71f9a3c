"""The bucket log of a simulated world: the real plugin on the world's object store. What its objects say is checked.

Every entry object that is created at or above the log start is in the log for good. It is judged here once more, as
simply as possible: numbers without a gap, each object naming the one before it, nothing deleted that still counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from diskless_bucket_log.bucket_log import BucketLog
from diskless_bucket_log.config import BucketLogSettings
from diskless_bucket_log.decisions import FIRST_POSITION, Position, position_after
from diskless_bucket_log.leases import Lease, decode_lease, encode_lease
from diskless_bucket_log.objects import FIRST_START, LogStart, Names, read_entry, read_start
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.shard import ShardId
from tests.simulation.bucket import Bucket, BucketFaults
from tests.simulation.logs import Host, Watcher

PREFIX = "wal-log"


class LogInBucket:
    """A `WorldLog`. Its nominations are leases; it can be told to nominate as whoever writes a lease does."""

    nominates_all_shards = False
    notices_the_dead = True

    def __init__(
        self,
        bucket: Bucket,
        shard_ids: Sequence[ShardId],
        source: random.Random,
        watcher: Watcher,
        violated: Callable[[str], None],
    ) -> None:
        self._bucket = bucket
        self._random = source
        self._watcher = watcher
        self._violated = violated
        self._settings = BucketLogSettings.model_validate(
            {
                "linger.ms": source.choice([0, 250]),
                "poll.max.ms": source.choice([3_000, 15_000]),
                "lease.ms": source.choice([6_000, 9_000]),
                "prefix": PREFIX,
            }
        )
        self._names: Mapping[str, Names] = {Names(PREFIX, shard).folder: Names(PREFIX, shard) for shard in shard_ids}
        self._ends: dict[ShardId, Position] = dict.fromkeys(shard_ids, FIRST_POSITION)
        self._starts: dict[ShardId, LogStart] = dict.fromkeys(shard_ids, FIRST_START)
        bucket.log_prefix = f"{PREFIX}/"
        bucket.watchers.append(self)

    # --- as worlds see a log -----------------------------------------------------------------------------------------

    @property
    def error_rate(self) -> float:
        return self._bucket.log_faults.error_rate

    @error_rate.setter
    def error_rate(self, rate: float) -> None:
        self._bucket.log_faults = BucketFaults(error_rate=rate, slow_rate=self.slow_rate)

    @property
    def slow_rate(self) -> float:
        return self._bucket.log_faults.slow_rate

    @slow_rate.setter
    def slow_rate(self, rate: float) -> None:
        self._bucket.log_faults = BucketFaults(error_rate=self.error_rate, slow_rate=rate)

    def plugin(self, host: Host) -> CoordinatorLog:
        context = PluginContext(
            node_id=host.node_id,
            data_dir=Path("nowhere"),
            log_dir=Path("nowhere"),
            clock=host.clock,
            object_store=lambda: host.objects,
        )
        return BucketLog(context, self._settings, check_rounds=0)

    def end(self, shard: ShardId) -> int:
        return self._ends[shard].offset

    def pause_reads(self, node_id: int) -> None:
        self._bucket.deaf.add(node_id)

    def resume_reads(self, node_id: int) -> None:
        self._bucket.hear(node_id)

    def nominates(self, shard: ShardId, node_id: int) -> bool:
        lease = self._lease(shard)
        return lease is not None and lease.holder == node_id

    def nominate(self, shard: ShardId, leader: int, seen_by: Iterable[int] | None = None) -> None:
        """Write a lease for the new leader: everybody sees it who can read it."""
        del seen_by
        held = self._lease(shard)
        lease = Lease(
            holder=leader,
            generation=held.generation + 1 if held is not None else 1,
            nonce=UUID(int=self._random.getrandbits(128)).hex,
            duration_ms=self._settings.lease_ms,
        )
        self._bucket.objects[self._names_of(shard).lease] = encode_lease(lease)

    def land_all(self) -> None:
        """What comes late comes soon, and counts only where nobody has written since."""

    def _lease(self, shard: ShardId) -> Lease | None:
        data = self._bucket.objects.get(self._names_of(shard).lease)
        return decode_lease(data) if data is not None else None

    @staticmethod
    def _names_of(shard: ShardId) -> Names:
        return Names(PREFIX, shard)

    # --- as a watcher of the bucket ----------------------------------------------------------------------------------

    def object_put(self, process: str, key: str) -> None:
        del process
        names = self._names.get(_folder(key))
        if names is None:
            return
        number = names.number_of(key)
        if number is not None:
            self._entry_created(names, number, self._bucket.objects[key])
        elif key == names.start:
            self._start_moved(names, read_start(names, self._bucket.objects[key]))

    def object_deleted(self, key: str, size_bytes: int) -> None:
        del size_bytes
        names = self._names.get(_folder(key))
        number = names.number_of(key) if names is not None else None
        if names is not None and (number is None or number >= self._starts[names.shard].number):
            self._violated(f"{key} was deleted, and the log begins with {self._starts[names.shard].number}")

    def _entry_created(self, names: Names, number: int, data: bytes) -> None:
        end = self._ends[names.shard]
        if number < self._starts[names.shard].number:
            return
        entry = read_entry(names, number, data)
        header = entry.header
        if (number, header.base_offset, header.predecessor) != (end.number, end.offset, end.predecessor):
            self._violated(f"{names.entry(number)} says {header}, and the log goes on with {end}")
            return
        self._ends[names.shard] = position_after(header)
        for batch in entry.batches:
            self._watcher(names.shard, batch)

    def _start_moved(self, names: Names, start: LogStart) -> None:
        before, end = self._starts[names.shard], self._ends[names.shard]
        if start.number < before.number or start.number > max(end.number - 1, 0):
            self._violated(f"the start of {names.shard} moves from {before} to {start}, and its end is {end}")
        self._starts[names.shard] = start


def _folder(key: str) -> str:
    return key.rpartition("/")[0] + "/"
