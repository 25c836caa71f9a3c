"""The commands of one leadership term that are on their way through the log, in order.

Pure bookkeeping: which are queued, which were handed to the log, which is next to come back. (KIP-1164, "How operations
are performed".)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from diskless_core.coordinator import entries
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.tables import Writes


class Outcome(Awaitable[None], Protocol):
    """What the caller of a command waits for: a future."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...

    def exception(self) -> BaseException | None: ...


@dataclass(slots=True)
class Pending:
    """A command whose entry has not been read back yet.

    Attributes:
        has_effects: whether it has done something beside the state too, which cannot be taken back.
    """

    sequence: int
    writes: Writes
    entry: bytes
    done: Outcome
    has_effects: bool = False

    def is_read_back_as(self, data: bytes) -> bool:
        """Whether the log's entry says the same. A log may have compressed it or set its timestamps."""
        if memoryview(data)[entries.UNPATCHED :] == memoryview(self.entry)[entries.UNPATCHED :]:
            return True
        return entries.decode(data) == entries.decode(self.entry)


class Pipeline:
    """Commands in sequence: queued, then handed over, then read back.

    Attributes:
        refusals: how often commands were taken back, see `take_back`.
    """

    def __init__(self) -> None:
        self.refusals = 0
        self._queued: deque[Pending] = deque()
        self._handed_over: deque[Pending] = deque()
        self._next_sequence = 0

    def __len__(self) -> int:
        return len(self._queued) + len(self._handed_over)

    @property
    def next_sequence(self) -> int:
        return self._next_sequence

    @property
    def last_queued(self) -> Pending | None:
        """The newest command that the log has not seen; what it proves, it proves for all that came before it."""
        return self._queued[-1] if self._queued else None

    @property
    def last(self) -> Pending | None:
        return self.last_queued or (self._handed_over[-1] if self._handed_over else None)

    @property
    def oldest_handed_over(self) -> Pending | None:
        return self._handed_over[0] if self._handed_over else None

    def add(self, pending: Pending) -> None:
        self._queued.append(pending)
        self._next_sequence += 1

    @property
    def handed_over(self) -> Sequence[Pending]:
        """What the log was given, oldest first."""
        return tuple(self._handed_over)

    def hand_over(self) -> list[Pending]:
        """Everything queued, for one append."""
        handed_over = list(self._queued)
        self._handed_over.extend(self._queued)
        self._queued.clear()
        return handed_over

    def read_back(self) -> Pending:
        return self._handed_over.popleft()

    def take_back(self, refused: Pending, why: CoordinatorError, behind: CoordinatorError) -> Sequence[Pending]:
        """Give up a command that the log has refused for good, and all behind it, which relied on its writes.

        None of them happened. The next command gets the refused one's sequence. What came before stays on its way.

        Returns what was given up; nothing, where the refused command is not on its way any more.
        """
        position = next((at for at, pending in enumerate(self._handed_over) if pending is refused), None)
        if position is None:
            return ()
        given_up = [*self.handed_over[position:], *self._queued]
        while len(self._handed_over) > position:
            self._handed_over.pop()
        self._queued.clear()
        self._next_sequence = refused.sequence
        self.refusals += 1
        _fail(given_up[:1], why)
        _fail(given_up[1:], behind)
        return given_up

    def fail(self, queued: CoordinatorError, handed_over: CoordinatorError) -> None:
        """Give all commands up and begin a new count. Those that the log never saw certainly did not happen."""
        for commands, error in ((self._handed_over, handed_over), (self._queued, queued)):
            _fail(commands, error)
            commands.clear()
        self._next_sequence = 0


def _fail(commands: Iterable[Pending], error: CoordinatorError) -> None:
    for pending in commands:
        if not pending.done.done():
            pending.done.set_exception(error)
            pending.done.exception()  # retrieved here: nobody may be waiting for it any more
