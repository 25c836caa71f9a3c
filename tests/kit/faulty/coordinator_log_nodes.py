"""Logs whose nodes do not agree, that nominate wrongly, or that do not end."""

from __future__ import annotations

import asyncio
import logging
import threading

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LeadershipHint
from diskless_core.testing.fakes.log import FakeCoordinatorLog, SharedLog
from tests.kit.fault import Unfound
from tests.kit.log_backends import NOUN, PASSWORD, fault, shared_fault, start_fault


class OffsetsOfItsOwn(FakeCoordinatorLog):
    """Each node counts the entries itself: offsets differ from node to node."""

    async def append(self, shard, batches):
        return [offset + self._node_id - 1 for offset in await super().append(shard, batches)]


class LastOneWins(FakeCoordinatorLog):
    """Two nodes that append at once write to the same place: one is overwritten."""

    async def append(self, shard, batches):
        state = self._shared.state(shard)
        end, entries, watermark = state.end, list(state.entries), state.high_watermark
        await asyncio.sleep(0)
        if state.end != end and self._node_id > 1:
            state.end, state.entries, state.high_watermark = end, entries, watermark
        return await super().append(shard, batches)


class OwnOrder(FakeCoordinatorLog):
    """A node reads its own appends as soon as they are sent, before what others appended earlier."""

    async def _stream(self, shard, offset):
        async for entries in super()._stream(shard, offset):
            yield entries[::-1] if self._node_id == 2 and offset == 0 and len(entries) > 10 else entries


class HearsOnlyOfItself(FakeCoordinatorLog):
    """A node that waits does not hear of what others append."""

    async def _stream(self, shard, offset):
        if self._node_id == 2:
            found = self._shared.state(shard).committed_from(offset)
            if found:
                yield found
            await asyncio.Event().wait()
        async for entries in super()._stream(shard, offset):
            yield entries


class EndOfWhatIsUnderWay(FakeCoordinatorLog):
    """The end that a node names has what others have under way, and may never commit."""

    async def bounds(self, shard):
        bounds = await super().bounds(shard)
        return type(bounds)(bounds.start, bounds.end + 1 if self._node_id == 2 and bounds.end else bounds.end)


class EndOfLongAgo(FakeCoordinatorLog):
    """A node names the end as it was when it started, of its own appends too."""

    async def bounds(self, shard):
        ends = self.__dict__.setdefault("ends", {})
        bounds = await super().bounds(shard)
        if self._node_id == 1:
            return bounds
        return type(bounds)(bounds.start, ends.setdefault(shard, bounds.end))


class EndAsAToolFoundIt(FakeCoordinatorLog):
    """A tool is told the end as it was when it opened the log."""

    async def start_reading(self):
        await super().start_reading()
        self.ends = {shard: state.high_watermark for shard, state in self._shared._shards.items()}

    async def bounds(self, shard):
        bounds = await super().bounds(shard)
        return type(bounds)(bounds.start, self.ends.get(shard, 0) if self._only_reads else bounds.end)


class PrunedIsSkippedByOthers(FakeCoordinatorLog):
    """What one node prunes the others skip."""

    def read(self, shard, offset):
        start = self._shared.state(shard).start
        return super().read(shard, max(offset, start) if self._node_id == 2 else offset)


class _Hinting(FakeCoordinatorLog):
    """Changes the hints that a node is given."""

    async def _hints(self, shard):
        async for hint in super()._hints(shard):
            yield self.changed(hint)

    def changed(self, hint):
        return hint


class HintsNeverCome(FakeCoordinatorLog):
    """Nobody is told who should lead until that changes."""

    async def _hints(self, shard):
        stream = super()._hints(shard)
        await anext(stream)
        async for hint in stream:
            yield hint


class HintsNeverChange(FakeCoordinatorLog):
    """The first hint is the only one."""

    async def _hints(self, shard):
        async for hint in super()._hints(shard):
            yield hint
            await asyncio.Event().wait()


class HintsOnceForAShard(FakeCoordinatorLog):
    """Only the first one who asks about a shard gets the hint at once."""

    async def _hints(self, shard):
        asked = self.__dict__.setdefault("asked", set())
        if shard in asked:
            await asyncio.Event().wait()
        asked.add(shard)
        async for hint in super()._hints(shard):
            yield hint


class EveryNodeIsNominated(_Hinting):
    """Each node is told that it should lead itself."""

    def changed(self, hint):
        return LeadershipHint(self._node_id, hint.generation)


class WhoIsNoCandidateIsNominated(FakeCoordinatorLog):
    """A node is nominated although it says that it is no candidate."""

    def leadership(self, shard, *, candidate=True):
        return super().leadership(shard, candidate=True)


class NobodyIsNobodysChange(_Hinting):
    """That nobody is nominated any more is not told."""

    async def _hints(self, shard):
        last = None
        async for hint in super()._hints(shard):
            if hint.node_id is not None or last is None:
                yield hint
            last = hint


class GenerationsStand(_Hinting):
    """All hints have one generation."""

    def changed(self, hint):
        return LeadershipHint(hint.node_id, 1)


class GenerationsGoBack(_Hinting):
    """The generations of nominations fall."""

    def changed(self, hint):
        return LeadershipHint(hint.node_id, 1_000_000 - hint.generation)


class GenerationsOfANode(_Hinting):
    """Each node counts the nominations that it saw, from its start on."""

    def __init__(self, shared, node_id):
        super().__init__(shared, node_id)
        self.count = 0

    def changed(self, hint):
        self.count += 1
        return LeadershipHint(hint.node_id, self.count)


class WhoLeftStaysNominated(SharedLog):
    """A node that has left stays nominated."""

    def node_stopped(self, node_id):
        self._notify_all()


class WhoWithdrewStaysNominated(SharedLog):
    """A node that withdraws its candidacy stays nominated until it leaves."""

    def take_part(self, shard, node_id, *, candidate):
        state = self.state(shard)
        if candidate or state.first.node_id != node_id:
            super().take_part(shard, node_id, candidate=candidate)


class CannotStandAgain(SharedLog):
    """A node that withdrew its candidacy once is never nominated again."""

    def take_part(self, shard, node_id, *, candidate):
        if node_id not in self.state(shard).outsiders:
            super().take_part(shard, node_id, candidate=candidate)


class SuspicionsRaise(FakeCoordinatorLog):
    """To suspect a node that is not there is an error."""

    def suspect(self, shard, node_id):
        if node_id not in self._shared._started:
            raise CoordinatorLogError(f"there is no node {node_id}")


class SuspicionsDepose(FakeCoordinatorLog):
    """Whoever is suspected is never nominated again, and neither is anybody else."""

    def suspect(self, shard, node_id):
        if self._running:
            self._shared.set_leader(shard, None)


class StopsOnce(FakeCoordinatorLog):
    """A second stop, or one before the start, is an error."""

    async def stop(self):
        self._require_running()
        await super().stop()


class StopLeavesReaders(FakeCoordinatorLog):
    """Readers and listeners that wait go on waiting when the log is stopped."""

    async def stop(self):
        self._running = False
        if self._node_id in self._shared._started:
            self._shared._started.remove(self._node_id)


class AppendsWhenStopped(FakeCoordinatorLog):
    """A log that was stopped goes on taking appends."""

    async def append(self, shard, batches):
        was, self._running = self._running, True
        try:
            return await super().append(shard, batches)
        finally:
            self._running = was


class ForeignErrorAfterStop(FakeCoordinatorLog):
    """An append to a log that was stopped raises what its client raises."""

    async def append(self, shard, batches):
        if not self._running:
            raise RuntimeError("Event loop is closed")
        return await super().append(shard, batches)


class AppendsEndCancelled(FakeCoordinatorLog):
    """Appends that are under way when the log stops are cancelled."""

    async def append(self, shard, batches):
        for _ in range(2):
            await asyncio.sleep(0)
        if not self._running and self.__dict__.get("started"):
            raise asyncio.CancelledError
        return await super().append(shard, batches)

    async def start(self):
        self.started = True
        await super().start()


class LeavesAThread(FakeCoordinatorLog):
    """A thread goes on when the log is stopped."""

    async def start(self):
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True, name="left").start()
        await super().start()


class LeavesATask(FakeCoordinatorLog):
    """A task goes on when the log is stopped."""

    async def start(self):
        self.task = asyncio.create_task(asyncio.Event().wait())
        await super().start()


class TellsThePassword(FakeCoordinatorLog):
    """When it cannot start it tells the address of its backend, with the password in it."""

    async def start(self):
        raise CoordinatorLogError(f"cannot connect to postgres://diskless:{PASSWORD}@127.0.0.1:1/diskless")


class LogsThePassword(FakeCoordinatorLog):
    """It logs the settings that it cannot connect with."""

    async def start(self):
        logging.getLogger(__name__).warning("cannot connect with password=%s", PASSWORD)
        raise CoordinatorLogError("cannot connect")


class StartFailsWithAForeignError(FakeCoordinatorLog):
    """When it cannot start it raises what its client raised."""

    async def start(self):
        raise ConnectionRefusedError("connection refused")


class StartHangs(FakeCoordinatorLog):
    """Without its backend, a start never ends."""

    async def start(self):
        await asyncio.Event().wait()


_ONE_HISTORY = "nodes that append at once write one history"
_NO_CANDIDATE = "a node that is no candidate is not nominated"
_WITHDRAWN = "nobody is nominated once all have withdrawn"
_GENERATIONS = "generations grow with each nomination and with restarts"
_CANNOT_OPEN = "a log that cannot be opened says so without secrets"
_LEAVES = "leaves no thread no task and no file open"

FAULTS = (
    fault("each-node-has-offsets-of-its-own", OffsetsOfItsOwn, "every node reads at the same offsets"),
    fault("the-last-of-two-nodes-wins", LastOneWins, _ONE_HISTORY),
    fault("a-node-reads-in-an-order-of-its-own", OwnOrder, _ONE_HISTORY),
    fault("a-node-hears-only-of-itself", HearsOnlyOfItself, "hears of another nodes append"),
    fault("a-node-names-an-end-that-is-not-committed", EndOfWhatIsUnderWay, "the end that a node is told can always"),
    fault("a-node-names-the-end-of-long-ago", EndOfLongAgo, "ones own append is below the end"),
    fault("a-tool-is-told-the-end-of-long-ago", EndAsAToolFoundIt, "sees at each look what was acknowledged before"),
    fault("what-one-node-prunes-another-skips", PrunedIsSkippedByOthers, "what one node prunes no other node skips"),
    fault("hints-never-come", HintsNeverCome, "a hint of who leads comes at once"),
    fault("hints-never-change", HintsNeverChange, "a candidate that withdraws gives way to another one"),
    fault("hints-come-once-for-a-shard", HintsOnceForAShard, "comes at once and to everybody who asks"),
    fault("every-node-is-nominated", EveryNodeIsNominated, "all nodes come to be told of one leader"),
    fault("who-is-no-candidate-is-nominated", WhoIsNoCandidateIsNominated, _NO_CANDIDATE),
    fault("that-nobody-leads-is-not-told", NobodyIsNobodysChange, _WITHDRAWN),
    fault("generations-stand-still", GenerationsStand, _GENERATIONS),
    fault("generations-go-back", GenerationsGoBack, _GENERATIONS),
    fault("generations-are-counted-by-each-node", GenerationsOfANode, _GENERATIONS),
    shared_fault("who-left-stays-nominated", WhoLeftStaysNominated, "a node that leaves gives way to another one"),
    shared_fault("who-withdrew-stays-nominated", WhoWithdrewStaysNominated, "a candidate that withdraws gives way"),
    shared_fault("who-withdrew-cannot-stand-again", CannotStandAgain, _WITHDRAWN),
    fault("a-wrong-suspicion-is-an-error", SuspicionsRaise, "a suspicion leaves one nominated and is no error"),
    fault("a-suspicion-leaves-nobody-nominated", SuspicionsDepose, "a suspicion leaves one nominated and is no error"),
    fault("stop-works-once", StopsOnce, "stop may be called twice and before start"),
    fault("stop-leaves-readers-waiting", StopLeavesReaders, "stopping ends readers and hints"),
    fault("a-stopped-log-takes-appends", AppendsWhenStopped, "nothing is appended once the log is stopped"),
    fault("a-stopped-log-raises-foreign-errors", ForeignErrorAfterStop, "that fails raises the interfaces error"),
    fault("stop-cancels-appends", AppendsEndCancelled, "appends under way when the log stops succeed or raise"),
    fault("leaves-a-thread", LeavesAThread, _LEAVES),
    fault("leaves-a-task", LeavesATask, _LEAVES),
    start_fault("tells-the-password", TellsThePassword, "a message has no secret"),
    start_fault("logs-the-password", LogsThePassword, "no secret is logged"),
    start_fault("a-failed-start-is-a-foreign-error", StartFailsWithAForeignError, "a CoordinatorLogError is raised"),
    start_fault("a-start-without-backend-never-ends", StartHangs, _CANNOT_OPEN),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That a library in C, or a service, acknowledges before it has synced.",
        reason="A suite sees the syncs of Python's `os` only. It does not reach the machines of a service.",
    ),
    Unfound(
        noun=NOUN,
        says="That a disk lies about a sync.",
        reason="No program on the machine can tell before its power is cut.",
    ),
    Unfound(
        noun=NOUN,
        says="That two nodes cut off from each other go on writing two histories.",
        reason="The suite's nodes are in one process. The chaos tests cut a cluster in two.",
    ),
)
