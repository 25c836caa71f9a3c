"""Moves the shards of a stopped cluster from one coordinator log to another.

The old log's last entry, which says where the shard goes on, decides: before it only the old log can be used, after it
only the new one. It is written in the term in which the state was read, so it counts only if nobody wrote meanwhile.
What comes after it can be done again at any time: a shard whose new log has no id yet does not start there, for the
snapshot with which it begins lies beside it.

Where shards become another number of shards (`Regrouping`), each of the old ones ends in this way, on a log that never
comes to be. When all of them have ended, their last states are dealt out: each new shard gets a snapshot, and then its
log a name that says which log it took the place of. What the old shards ended with is removed last.

A run can stand still anywhere while another one goes on, so none removes what another run put before it is decided
which of them counts. That is the end of the old log, or the name of the new one: both are records that are accepted
once and never taken back. What they do not name can never be used, however late its run goes on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator import entries, which_log
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_identity import LogName, log_name_of, stored_name
from diskless_core.coordinator.new_log import MigrationRefusedError, NewLog
from diskless_core.coordinator.regrouping import Regrouping, Rows, RowsView
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.snapshots import Beginning, Snapshots
from diskless_core.coordinator.state_machine import Command, StateMachine
from diskless_core.coordinator.tables import Key, Table
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, LeadershipHint
from diskless_core.plugin.coordinator_store import CoordinatorStore
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError
from diskless_core.snapshot.format import SnapshotError

V = TypeVar("V")

_MOVED_MEANWHILE = (
    "another run of this command has moved {shard} meanwhile: run it again, and it finishes what is left to do"
)
_EMPTY = "the log to move from is empty: has a broker run with these settings?"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedShard:
    """A shard that is on its new log now.

    Attributes:
        name: of the new log.
        was_moved_before: an earlier run had ended the old log already.
    """

    shard: ShardId
    name: LogName
    was_moved_before: bool


@dataclass(frozen=True, slots=True)
class LastRows(Generic[V]):
    """Rows of a shard.

    Attributes:
        is_decided: whether the old log is ended, by this run or an earlier one.
    """

    rows: Mapping[Key, V]
    is_decided: bool


class _OwnNomination:
    """Nominates whoever asks: in a stopped cluster nobody else does."""

    async def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        del shard, candidate
        yield LeadershipHint(TOOL_NODE_ID, 0)
        await asyncio.Event().wait()


class _Departure:
    """A shard on its old log, led by this process."""

    def __init__(self, shard: CoordinatorShard[Any], term: int, name: LogName) -> None:
        self.shard = shard
        self.term = term
        self.name = name

    def require_undisturbed(self) -> None:
        """Raises:
        MigrationRefusedError: another node has claimed the shard, so that there may be more than was read.
        """
        if self.shard.term != self.term:
            raise MigrationRefusedError(
                f"node {self.shard.claimed_by} claimed {self.shard.id} meanwhile, or the log failed: stop all brokers "
                f"and run the migration again"
            )


class LogMigration:
    """One run. All of its arguments are started, and nobody else uses the store.

    Args:
        destination: the name of the coordinator log `target`, for people.
        store: this node's. Those of other nodes are emptied when they start on the new log.
    """

    def __init__(
        self,
        *,
        source: CoordinatorLog,
        target: CoordinatorLog,
        destination: str,
        store: CoordinatorStore,
        snapshots: Snapshots,
        clock: Clock,
    ) -> None:
        self._source = source
        self._target = target
        self._new_log = NewLog(target, clock)
        self._destination = destination
        self._store = store
        self._snapshots = snapshots
        self._clock = clock

    async def run(
        self,
        machines: Mapping[ShardId, StateMachine[Any]],
        regrouping: Regrouping | None = None,
        amendments: Mapping[ShardId, Rows] = MappingProxyType({}),
    ) -> Sequence[MovedShard]:
        """Move all shards that the old log has. An interrupted run is finished by the next, with the same arguments.

        Args:
            machines: of all shards that there are on the old log, in the order in which they are moved.
            regrouping: what becomes of some of them, if others take their place.
            amendments: small tables that have these rows instead where a shard goes on.

        Raises:
            MigrationRefusedError: somebody uses one of the logs, or they do not fit.
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError, SnapshotError: a
                backend failed, or its content is gone.
        """
        bounds = {shard: await self._source.bounds(shard) for shard in machines}
        present = [shard for shard in machines if bounds[shard].end > 0]
        if not present:
            raise MigrationRefusedError(_EMPTY)
        before = dict[ShardId, LogName]()
        for shard in present:
            successor = await which_log.successor_of(self._source, shard, bounds[shard])
            if successor is not None:
                before[shard] = successor.name
        if regrouping is not None and not any(shard in present for shard in regrouping.old):
            regrouping = None
        dealt = regrouping.old if regrouping is not None else ()
        former = {shard: name.moved_from for shard, name in before.items()}
        going = {shard: former.get(shard) for shard in present if shard not in dealt}
        if regrouping is not None:
            some = next((former[shard] for shard in regrouping.old if shard in former), None)
            going |= {shard: former.get(shard, some) for shard in regrouping.new}
        decided = {shard: name.log_id for shard, name in before.items() if shard not in dealt}
        terms = {shard: await self._new_log.claim(shard, log_id, decided.get(shard)) for shard, log_id in going.items()}
        departing = {shard: machines[shard] for shard in present if shard not in before}
        names = before | await self._depart(departing, amendments)
        moved = {shard: names[shard] for shard in present if shard not in dealt}
        if regrouping is not None:
            ended = {shard: names[shard] for shard in regrouping.old if shard in names}
            moved |= await self._deal(regrouping, ended, terms)
        for shard, name in moved.items():
            await self._new_log.name(shard, name, terms[shard])
        # From here on it is decided, for all shards, which logs go on: nothing of the others is needed from then on.
        for shard in present:
            await asyncio.to_thread(self._empty_store, shard, machines[shard], names[shard])
            await self._remove_of_former(shard, names[shard], moved)
        for shard in set(moved) - set(present):  # those that regrouping added
            await self._remove_attempts(shard, moved[shard], moved)
        return [
            MovedShard(
                shard=shard,
                name=name,
                was_moved_before=not departing or (shard in before and shard not in dealt),
            )
            for shard, name in moved.items()
        ]

    async def read_table(self, shard: ShardId, machine: StateMachine[Any], table: Table[V]) -> LastRows[V]:
        """The rows of a table of a shard, in which it goes on or would.

        Raises:
            MigrationRefusedError: as `run`.
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError, SnapshotError: as `run`.
        """
        bounds = await self._source.bounds(shard)
        if bounds.end == 0:
            raise MigrationRefusedError(_EMPTY)
        successor = await which_log.successor_of(self._source, shard, bounds)
        if successor is None:
            async with AsyncExitStack() as stack:
                departure = await self._lead(shard, machine, stack)
                return LastRows(dict(departure.shard.state.rows(table)), is_decided=False)
        rows = await self._snapshots.rows_of_log(shard, successor.name.log_id)
        if rows is None:
            raise MigrationRefusedError(f"what {shard} ended with is not among its snapshots: bring them back")
        return LastRows(dict(map(table.entity, rows[table.name])), is_decided=True)

    # --- the old log ---------------------------------------------------------------------------------------------

    async def _depart(
        self, machines: Mapping[ShardId, StateMachine[Any]], amendments: Mapping[ShardId, Rows]
    ) -> dict[ShardId, LogName]:
        """Put the snapshots with which shards begin on their new logs, then end their old ones. The new logs' names."""
        names = dict[ShardId, LogName]()
        async with AsyncExitStack() as stack:
            departures = [await self._lead(shard, machine, stack) for shard, machine in machines.items()]
            try:
                for departure in departures:
                    name = names[departure.shard.id] = LogName(self._clock.new_uuid(), departure.name.log_id)
                    await self._put_beginning(departure, name, amendments.get(departure.shard.id, {}))
                for departure in departures:
                    await self._end_log(departure, names[departure.shard.id])
            except (MigrationRefusedError, CoordinatorError, WalObjectStoreError, SnapshotError) as error:
                for shard in await self._withdrawn(names):
                    raise MigrationRefusedError(_MOVED_MEANWHILE.format(shard=shard)) from error
                raise
        return names

    async def _lead(self, shard_id: ShardId, machine: StateMachine[Any], stack: AsyncExitStack) -> _Departure:
        services = ShardServices(
            node_id=TOOL_NODE_ID,
            clock=self._clock,
            log=self._source,
            store=self._store,
            snapshots=self._snapshots,
            nominator=_OwnNomination(),
        )
        shard = CoordinatorShard(shard_id, machine, services)
        stack.push_async_callback(shard.stop)
        await shard.start()
        await shard.until_leading()
        log_id = self._clock.new_uuid()
        await shard.submit(lambda command: command.name_log(log_id))
        name = log_name_of(shard.state)
        if name is None or shard.term is None:
            raise MigrationRefusedError(f"{shard_id} was claimed by another node: stop all brokers, and run this again")
        return _Departure(shard, shard.term, name)

    async def _put_beginning(self, departure: _Departure, name: LogName, instead: Rows) -> None:
        await departure.shard.flush()
        departure.require_undisturbed()
        await departure.shard.take_snapshot(self._snapshots, Beginning(name, instead))

    async def _withdrawn(self, names: Mapping[ShardId, LogName]) -> list[ShardId]:
        """The shards that another run has moved meanwhile. What this run put for them is removed: it can never be used.

        Where the old log has not ended, this run's own word may still get there: what it put stays for a later run.
        """
        withdrawn = list[ShardId]()
        for shard, name in names.items():
            try:
                successor = await which_log.successor_of(self._source, shard, await self._source.bounds(shard))
                if successor is not None and successor.name.log_id != name.log_id:
                    withdrawn.append(shard)
                    await self._snapshots.remove_log(shard, name.log_id)
            except (CoordinatorLogError, WalObjectStoreError) as error:
                _log.warning("a snapshot that nothing needs is left", shard=str(shard), error=str(error))
        return withdrawn

    async def _end_log(self, departure: _Departure, successor: LogName) -> None:
        def end(command: Command[Any]) -> None:
            departure.require_undisturbed()
            command.end_log(successor.log_id, self._destination)

        departure.require_undisturbed()
        await departure.shard.submit(end)
        _log.info("a log was moved", shard=str(departure.shard.id), log_id=str(successor.log_id))

    # --- shards that become others ------------------------------------------------------------------------------

    async def _deal(
        self, regrouping: Regrouping, ended: Mapping[ShardId, LogName], terms: Mapping[ShardId, int | None]
    ) -> dict[ShardId, LogName]:
        """Put the snapshots with which the new shards begin, and return the names of their logs.

        Args:
            ended: how the old shards ended, each with the name of a log that never comes to be.
            terms: of the new shards' logs; None where the log has its name already.
        """
        some = next(iter(ended.values())).moved_from
        names, states = dict[ShardId, LogName](), list[Rows]()
        for shard in regrouping.new:
            if terms[shard] is None:
                name = await which_log.name_of(self._target, shard, await self._target.bounds(shard))
                if name is None:
                    raise CoordinatorLogError(f"the first entries of the new log of {shard} could not be read")
                names[shard] = name
        if len(names) < len(regrouping.new):
            states = [await self._ended_with(shard, name) for shard, name in ended.items()]
        for shard, rows in zip(regrouping.new, regrouping.dealt(states), strict=True):
            if shard not in names:
                end = ended.get(shard)
                former = end.moved_from if end is not None else some
                name = names[shard] = LogName(self._clock.new_uuid(), former)
                view = RowsView(regrouping.tables, rows, name)
                try:
                    await self._snapshots.put(shard, regrouping.tables, view, self._clock.now_ms())
                except (SnapshotError, ObjectNotFoundError) as error:  # a run that has finished removes what is not its
                    if await which_log.name_of(self._target, shard, await self._target.bounds(shard)) is None:
                        raise
                    raise MigrationRefusedError(_MOVED_MEANWHILE.format(shard=shard)) from error
        return names

    async def _ended_with(self, shard: ShardId, name: LogName) -> Rows:
        rows = await self._snapshots.rows_of_log(shard, name.log_id)
        if rows is None:
            raise MigrationRefusedError(
                f"what {shard} ended with is not among its snapshots: if another run of this command has finished "
                f"meanwhile, run this one again; else bring them back"
            )
        return rows

    # --- what is left --------------------------------------------------------------------------------------------

    async def _remove_of_former(self, shard: ShardId, ended_as: LogName, moved: Mapping[ShardId, LogName]) -> None:
        """Remove the snapshots of a log that has ended, and what attempts left that its end does not name."""
        if ended_as.moved_from is not None:
            await self._snapshots.remove_log(shard, ended_as.moved_from)
        await self._remove_attempts(shard, ended_as, moved)

    async def _remove_attempts(self, shard: ShardId, name: LogName, moved: Mapping[ShardId, LogName]) -> None:
        kept = {moved[shard].log_id} if shard in moved else set[uuid.UUID]()
        if name.moved_from is not None:
            await self._snapshots.remove_attempts(shard, name.moved_from, kept)

    def _empty_store(self, shard: ShardId, machine: StateMachine[Any], name: LogName) -> None:
        opened = self._store.open(shard, [table.spec for table in entries.tables_of(machine)])
        try:
            found = stored_name(opened)
            if found is not None and found.log_id == name.moved_from:
                opened.clear()
        finally:
            opened.close()
