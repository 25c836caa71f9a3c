"""A coordinator log in memory, shared by any number of simulated nodes, that misbehaves when told to.

`SharedLog` is what a replicated log would be: the entries, the hints, and the switches of a test. `FakeCoordinatorLog`
is one node's plugin on it. No thread, no file, no clock: it runs on any event loop, a virtual-time one included.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from diskless_core.log.segment import require_whole_batch
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    EntryRefusedError,
    LeadershipHint,
    LogBatch,
    LogBounds,
    LogOffsetPrunedError,
)
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import CorruptBatchError

_ALL_NODES = -1

APPEND_TIMEOUT_S = 30.0
"""After which an append that has heard nothing raises."""


class AppendFault(Enum):
    """How an append that raises went in truth."""

    NOTHING_APPENDED = auto()
    FIRST_BATCH_APPENDED = auto()
    ALL_APPENDED = auto()
    APPENDED_LATER = auto()
    """The batches land at `SharedLog.land_late_appends`, after whatever was appended meanwhile."""


@dataclass(slots=True)
class _PlannedFault:
    fault: AppendFault
    shard: ShardId | None
    node_id: int | None

    def concerns(self, shard: ShardId, node_id: int) -> bool:
        return self.shard in (None, shard) and self.node_id in (None, node_id)


@dataclass(slots=True)
class SharedShard:
    start: int = 0
    high_watermark: int = 0
    end: int = 0
    held: bool = False
    reported_end: int | None = None
    entries: list[LogBatch] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)
    hints: dict[int, LeadershipHint] = field(default_factory=dict)
    first: LeadershipHint = field(default_factory=lambda: LeadershipHint(None, 0))
    generation: int = 0
    outsiders: set[int] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, batch: bytes) -> int:
        base_offset = self.end
        self.end += require_whole_batch(batch).record_count
        self.entries.append(LogBatch(base_offset, self.end, batch))
        if not self.held:
            self.high_watermark = self.end
        self.notify()
        return base_offset

    def committed_from(self, offset: int) -> list[LogBatch]:
        first = bisect_right(self.entries, offset, key=lambda entry: entry.next_offset)
        last = bisect_right(self.entries, self.high_watermark, key=lambda entry: entry.next_offset)
        return self.entries[first:last]

    def nominated(self, node_id: int | None) -> LeadershipHint:
        """A nomination, which is newer than all before."""
        self.generation += 1
        return LeadershipHint(node_id, self.generation)

    def notify(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class SharedLog:
    """The log itself, which outlives its nodes. All methods are synchronous and take effect at once.

    Until `set_leader` says otherwise, the first candidate of those that start is hinted as leader of every shard.

    Attributes:
        append_delay_s: called before each batch of an append; the seconds that it is slept. Appends of several nodes
            then interleave batch by batch.
        nominates_all_shards: see `CoordinatorLog`.
        append_error: called as `append_error(shard, node_id)` at each append for which no fault is planned; the fault
            that it returns happens.
        entries_read: how many entries the readers of each node were given, by its id.
        append_timeout_s: how long an append waits for the high watermark.
        suspicions: what its nodes were told by `suspect`: of which shard, who, and by whom. Nothing follows from it
            until the test lets it.
        max_entry_bytes: the largest batch that the log takes.
        announced_max_entry_bytes: what it says of that; another number while the log does not know better.
    """

    def __init__(self, *, append_delay_s: Callable[[], float] | None = None, nominates_all_shards: bool = True) -> None:
        self.nominates_all_shards = nominates_all_shards
        self.append_delay_s = append_delay_s
        self.append_timeout_s = APPEND_TIMEOUT_S
        self.max_entry_bytes = self.announced_max_entry_bytes = CoordinatorLog.max_entry_bytes
        self.append_error: Callable[[ShardId, int], AppendFault | None] | None = None
        self.entries_read: Counter[int] = Counter()
        self.suspicions: list[tuple[ShardId, int, int]] = []
        self._shards: dict[ShardId, SharedShard] = {}
        self._faults: list[_PlannedFault] = []
        self._read_faults: set[int] = set()
        self._paused: dict[int, dict[ShardId, int]] = {}
        self._started: list[int] = []

    def node(self, node_id: int) -> FakeCoordinatorLog:
        """A plugin instance for one node; a restart of a node is a new instance."""
        return FakeCoordinatorLog(self, node_id)

    def fail_next_append(
        self,
        fault: AppendFault = AppendFault.NOTHING_APPENDED,
        *,
        shard: ShardId | None = None,
        node_id: int | None = None,
        times: int = 1,
    ) -> None:
        """Make the next append (of that shard, of that node) raise. Planned faults happen in the order planned."""
        self._faults.extend(_PlannedFault(fault, shard, node_id) for _ in range(times))

    def forget_faults(self) -> None:
        """Nothing that was planned and has not happened yet will."""
        self._faults.clear()
        self._read_faults.clear()

    def fail_next_read(self, node_id: int) -> None:
        """Make the streams of a node raise once, as soon as one of them is waited for."""
        self._read_faults.add(node_id)
        self._notify_all()

    def land_late_appends(self, shard: ShardId) -> None:
        """Append what `AppendFault.APPENDED_LATER` kept back."""
        state = self.state(shard)
        late, state.late = state.late, []
        for batch in late:
            state.append(batch)

    def hold_high_watermark(self, shard: ShardId) -> None:
        """From now on appended batches stay invisible, and their appends wait."""
        self.state(shard).held = True

    def release_high_watermark(self, shard: ShardId) -> None:
        """Make everything appended visible, and answer the appends that waited."""
        state = self.state(shard)
        state.held = False
        state.high_watermark = state.end
        state.notify()

    def truncate(self, shard: ShardId, end: int) -> None:
        """Lose everything from an offset on, as no log may. The offsets are given out again."""
        state = self.state(shard)
        state.entries = [entry for entry in state.entries if entry.next_offset <= end]
        state.end = state.high_watermark = end
        state.notify()

    def lag_bounds(self, shard: ShardId, end: int | None) -> None:
        """Say that the log ends there, until an append of this shard is acknowledged. None: say how it is.

        Nodes that opened the log for reading are told how it is.
        """
        self.state(shard).reported_end = end

    def pause_reads(self, node_id: int, *, beyond_now: bool = False) -> None:
        """A node lags: its readers get nothing more until `resume_reads`. Its appends and bounds go on.

        Args:
            beyond_now: who reads what is committed now gets something still.
        """
        ends = {shard: state.high_watermark for shard, state in self._shards.items()}
        self._paused[node_id] = ends if beyond_now else {}

    def resume_reads(self, node_id: int) -> None:
        """Let the node catch up."""
        self._paused.pop(node_id, None)
        self._notify_all()

    def set_leader(self, shard: ShardId, leader: int | None, *, seen_by: Iterable[int] | None = None) -> None:
        """Change the hint, for all nodes or only for those named: so two nodes may each see another leader."""
        state = self.state(shard)
        hint = state.nominated(leader)
        if seen_by is None:
            state.hints = {_ALL_NODES: hint}
        else:
            state.hints.update(dict.fromkeys(seen_by, hint))
        state.notify()

    def content(self, shard: ShardId) -> list[LogBatch]:
        """Back door: everything that is in the log, committed or not."""
        return list(self.state(shard).entries)

    def state(self, shard: ShardId) -> SharedShard:
        return self._shards.setdefault(shard, SharedShard())

    def is_paused(self, shard: ShardId, node_id: int, offset: int) -> bool:
        """Whether a node's readers that have come to `offset` get nothing now."""
        return node_id in self._paused and offset >= self._paused[node_id].get(shard, 0)

    def hint(self, shard: ShardId, node_id: int) -> LeadershipHint:
        state = self.state(shard)
        first = next((node for node in self._started if node not in state.outsiders), None)
        if first != state.first.node_id:
            state.first = state.nominated(first)
        return state.hints.get(node_id, state.hints.get(_ALL_NODES, state.first))

    def node_started(self, node_id: int) -> None:
        if node_id not in self._started:
            self._started.append(node_id)

    def take_part(self, shard: ShardId, node_id: int, *, candidate: bool) -> None:
        """Note whether a node may be hinted as leader of a shard without `set_leader` saying so."""
        state = self.state(shard)
        if candidate:
            state.outsiders.discard(node_id)
        else:
            state.outsiders.add(node_id)
        state.notify()

    def node_stopped(self, node_id: int) -> None:
        if node_id in self._started:
            self._started.remove(node_id)
        self._notify_all()

    def take_fault(self, shard: ShardId, node_id: int) -> AppendFault | None:
        for planned in self._faults:
            if planned.concerns(shard, node_id):
                self._faults.remove(planned)
                return planned.fault
        return self.append_error(shard, node_id) if self.append_error else None

    def take_read_fault(self, node_id: int) -> bool:
        planned = node_id in self._read_faults
        self._read_faults.discard(node_id)
        return planned

    def _notify_all(self) -> None:
        for state in self._shards.values():
            state.notify()


class FakeCoordinatorLog(CoordinatorLog):
    """One node's view of a `SharedLog`."""

    is_shared = True

    def __init__(self, shared: SharedLog, node_id: int) -> None:
        self.nominates_all_shards = shared.nominates_all_shards
        self._shared = shared
        self._node_id = node_id
        self._running = self._only_reads = False

    @property
    def max_entry_bytes(self) -> int:  # type: ignore[override]
        return self._shared.announced_max_entry_bytes

    async def start(self) -> None:
        self._running = True
        self._shared.node_started(self._node_id)

    async def start_reading(self) -> None:
        self._running = self._only_reads = True

    async def stop(self) -> None:
        self._running = self._only_reads = False
        self._shared.node_stopped(self._node_id)

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        self._require_running()
        if self._only_reads:
            raise CoordinatorLogError(f"the log of {shard} was opened for reading only")
        _require_whole_batches(batches)
        fault = self._shared.take_fault(shard, self._node_id)
        state = self._shared.state(shard)
        match fault:
            case None:
                offsets = await self._append_each(state, batches)
            case AppendFault.NOTHING_APPENDED:
                raise CoordinatorLogError("injected: nothing was appended")
            case AppendFault.APPENDED_LATER:
                state.late.extend(batches)
                raise CoordinatorLogError("injected: appended later, perhaps")
            case AppendFault.FIRST_BATCH_APPENDED | AppendFault.ALL_APPENDED:
                await self._append_each(state, batches[:1] if fault is AppendFault.FIRST_BATCH_APPENDED else batches)
                raise CoordinatorLogError(f"injected: {fault.name.lower()}, but the answer was lost")
        await self._until_committed(state, offsets)
        state.reported_end = None
        if len(offsets) < len(batches):
            message = f"the entry has {len(batches[len(offsets)])} bytes, {self._shared.max_entry_bytes} are allowed"
            raise EntryRefusedError(message, position=len(offsets))
        return offsets

    async def _until_committed(self, state: SharedShard, offsets: Sequence[int]) -> None:
        try:
            async with asyncio.timeout(self._shared.append_timeout_s):
                while offsets and state.high_watermark <= offsets[-1]:
                    await state.changed.wait()
                    self._require_running()
        except TimeoutError:
            raise CoordinatorLogError("the high watermark has not come so far in time") from None

    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        self._require_running()
        return self._stream(shard, offset)

    async def bounds(self, shard: ShardId) -> LogBounds:
        self._require_running()
        state = self._shared.state(shard)
        lags_at = None if self._only_reads else state.reported_end
        end = state.high_watermark if lags_at is None else lags_at
        return LogBounds(min(state.start, end), end)

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        self._require_running()
        self._shared.take_part(shard, self._node_id, candidate=candidate)
        return self._hints(shard)

    def suspect(self, shard: ShardId, node_id: int) -> None:
        if self._running:
            self._shared.suspicions.append((shard, node_id, self._node_id))

    async def prune(self, shard: ShardId, before: int) -> None:
        self._require_running()
        state = self._shared.state(shard)
        kept = [entry for entry in state.entries if entry.next_offset > min(before, state.high_watermark)]
        state.entries = kept
        state.start = max(state.start, kept[0].offset if kept else state.high_watermark)
        state.notify()

    async def _stream(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        state = self._shared.state(shard)
        while self._running:
            if self._shared.take_read_fault(self._node_id):
                raise CoordinatorLogError("injected: reading failed")
            if self._shared.is_paused(shard, self._node_id, offset):
                await state.changed.wait()
                continue
            if offset < state.start:
                raise LogOffsetPrunedError(f"offset {offset} of {shard} is below the log's start {state.start}")
            batches = state.committed_from(offset)
            if batches:
                offset = batches[-1].next_offset
                self._shared.entries_read[self._node_id] += len(batches)
                yield batches
            else:
                await state.changed.wait()

    async def _hints(self, shard: ShardId) -> AsyncIterator[LeadershipHint]:
        state = self._shared.state(shard)
        hint = self._shared.hint(shard, self._node_id)
        yield hint
        while self._running:
            changed = state.changed
            present = self._shared.hint(shard, self._node_id)
            if present == hint:
                await changed.wait()
            else:
                hint = present
                yield hint

    async def _append_each(self, state: SharedShard, batches: Sequence[bytes]) -> list[int]:
        """Append up to the first batch that is too large."""
        offsets = list[int]()
        for batch in batches:
            if len(batch) > self._shared.max_entry_bytes:
                return offsets
            if self._shared.append_delay_s is not None:
                await asyncio.sleep(self._shared.append_delay_s())
                self._require_running()
            offsets.append(state.append(batch))
        return offsets

    def _require_running(self) -> None:
        if not self._running:
            raise CoordinatorLogError(f"the log of node {self._node_id} is not running")


def _require_whole_batches(batches: Sequence[bytes]) -> None:
    for batch in batches:
        try:
            require_whole_batch(batch)
        except CorruptBatchError as error:
            raise CoordinatorLogError(f"refused to append: {error}") from error
