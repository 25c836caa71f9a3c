"""The beginning of a log that takes the place of another one.

It is claimed by a tool, so that whoever else writes there is noticed, and then gets its name. Before that no broker
starts on it, for the snapshot with which it begins lies beside it; from then on brokers can.
"""

from __future__ import annotations

import uuid
from contextlib import aclosing, suppress

from diskless_core.clock import Clock
from diskless_core.coordinator import entries, which_log
from diskless_core.coordinator.entries import Acceptance, Claim, Entry
from diskless_core.coordinator.log_identity import LogName, encode_name
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, LogOffsetPrunedError
from diskless_core.plugin.shard import ShardId


class MigrationRefusedError(Exception):
    """The cluster was not moved, or not all of it. What is missing is done when the same command is run again."""


class NewLog:
    """The shards of a log to which a cluster goes, and which nobody else uses."""

    def __init__(self, log: CoordinatorLog, clock: Clock) -> None:
        self._target = log
        self._clock = clock

    async def claim(self, shard: ShardId, former: uuid.UUID | None, decided: uuid.UUID | None = None) -> int | None:
        """Claim the new log, and return the term; None where it has its name already.

        Args:
            former: the id of the old log, if that is ended.
            decided: the id that the end of the old log gives this one, if it does. A log that was pruned since says
                only its own id.
        """
        bounds = await self._target.bounds(shard)
        found = await which_log.name_of(self._target, shard, bounds)
        if found is not None and found.log_id == decided:
            return None
        if found is not None and former is not None and found.moved_from == former:
            return None
        if await which_log.successor_of(self._target, shard, bounds) is not None:
            raise MigrationRefusedError(
                f"the log of {shard} to move to was left by an earlier migration: delete all of that log, or configure "
                f"another place for the new one"
            )
        acceptance, reached, is_used = Acceptance(), bounds.start, found is not None or bounds.start > 0
        async with aclosing(which_log.read_entries(self._target, shard, bounds.start, bounds.end)) as stream:
            async for batch, entry in stream:
                is_used = is_used or (isinstance(entry, Entry) and acceptance.accepts(entry))
                acceptance, reached = acceptance.after(entry, batch), batch.next_offset
                if is_used:
                    break
        if is_used:
            raise MigrationRefusedError(
                f"the log of {shard} to move to is in use: it has entries of other than this migration. Move to one "
                f"that is empty"
            )
        if reached < bounds.end:
            raise CoordinatorLogError(f"the log of {shard} to move to could not be read up to its end")
        claim = Claim(node_id=TOOL_NODE_ID, claim_id=self._clock.new_uuid(), read=acceptance.at(reached))
        [term] = await self._target.append(shard, [entries.encode_claim(claim, self._clock.now_ms())])
        return term

    async def name(self, shard: ShardId, name: LogName, term: int | None) -> None:
        """Give the new log its name: from then on brokers can start on it."""
        if term is None:
            return
        entry = entries.encode_entry(term, 0, [encode_name(name)], self._clock.now_ms())
        [offset] = await self._target.append(shard, [entry])
        acceptance = Acceptance()
        with suppress(LogOffsetPrunedError):  # brokers use it, with a name that another run gave it
            async with aclosing(which_log.read_entries(self._target, shard, term, offset + 1)) as stream:
                async for batch, found in stream:
                    if batch.offset == offset and isinstance(found, Entry) and acceptance.accepts(found):
                        return
                    acceptance = acceptance.after(found, batch)
        raise MigrationRefusedError(
            f"the entry that names the new log of {shard} was not read back as it was written: stop all brokers and "
            f"run this again"
        )
