"""Watches a broker's wall clock: against the monotonic clock, the coordinator logs, and the clocks of other brokers.

What it finds wrong casts doubt on times that were written down; see `passed_time` for the rule.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from diskless_core.clock import Clock
from diskless_core.passed_time import Doubt, Passed

TOLERANCE_MS = 10_000
"""By how much clocks may differ, or jump, until that counts. Clocks that NTP keeps differ by less than a tenth of a
second, and a comparison over a slow network is off by up to one second. The shortest time by which something is
forgotten, the delay of a deletion, is a minute by default."""

SETTLED_MS = TOLERANCE_MS // 2
"""When the clocks of live brokers differ by this much at most, they agree again. Less than the tolerance, so that
clocks that differ by about that much do not agree and disagree in turns."""

MAX_DOUBTS = 16
"""Doubts that are kept apart. The oldest ones are merged into one that is no smaller."""

_log = structlog.get_logger(__name__)


class ClockWatch:
    """The doubts of one process. A broker has one, which all of its shards share."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._offset_ms = self._began_ms - int(clock.monotonic() * 1000)
        self._newest_ms: int | None = None
        self._gap: Doubt | None = None
        self._has_told_gap = False
        self._step_back: Doubt | None = None
        self._is_vouched = False
        self._doubts: list[Doubt] = []
        self._differences: Mapping[int, int] = {}
        self._worst_ms = 0
        self._is_held = False

    @property
    def is_held(self) -> bool:
        """Whether nothing is forgotten, because the clock of a live broker is off."""
        return self._is_held

    @property
    def difference_ms(self) -> int:
        """The largest difference to the clock of a live broker at the last comparison; 0 where there is none."""
        return max(map(abs, self._differences.values()), default=0)

    def passed(self) -> Passed:
        """What is known now."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        self._notice_jump(now_ms, now_s)
        self._tell_gap()
        of_logs = [doubt for doubt in (self._gap, self._step_back) if doubt is not None]
        return Passed(now_ms=now_ms, now_s=now_s, doubts=(*self._doubts, *of_logs), is_held=self._is_held)

    # --- jumps -------------------------------------------------------------------------------------------------------

    def _notice_jump(self, now_ms: int, now_s: float) -> None:
        jumped_ms = now_ms - int(now_s * 1000) - self._offset_ms
        if abs(jumped_ms) <= TOLERANCE_MS:
            return
        self._offset_ms += jumped_ms
        self._began_ms += jumped_ms
        _log.warning(
            "the wall clock jumped: expiry and deletion by time go on by the time that has really passed",
            seconds=jumped_ms / 1000,
        )
        if jumped_ms > 0:  # a clock that was set back makes everything younger, which forgets nothing early
            self._add(Doubt(until_ms=now_ms, by_ms=jumped_ms, since_s=now_s))

    def _add(self, doubt: Doubt) -> None:
        self._doubts.append(doubt)
        if len(self._doubts) > MAX_DOUBTS:
            first, second, *rest = self._doubts
            merged = Doubt(
                until_ms=max(first.until_ms, second.until_ms),
                by_ms=first.by_ms + second.by_ms,
                since_s=max(first.since_s, second.since_s),
            )
            self._doubts = [merged, *rest]

    # --- what logs say -----------------------------------------------------------------------------------------------

    def follow(self, stamp_ms: int, newest_ms: int) -> int:
        """Hear of the time of the next entry in a coordinator log, and return the newest that counts from then on.

        The times in a log go on. Where one steps back, a leader was ahead before, or this one is behind. If this
        broker's clock agrees with the entry it was the former, which forgets nothing early. Else each such entry renews
        the doubt. So a follower that takes over knows of it sooner than by heartbeats.

        Args:
            newest_ms: what the call for the entry before returned; 0 for the first.
        """
        self.saw(stamp_ms)
        step_ms = newest_ms - stamp_ms
        if step_ms <= TOLERANCE_MS:
            return max(stamp_ms, newest_ms)
        now_ms = self._clock.now_ms()
        if abs(now_ms - stamp_ms) <= TOLERANCE_MS:
            return stamp_ms
        by_ms = max(step_ms, now_ms - stamp_ms, self._step_back.by_ms if self._step_back is not None else 0)
        self._step_back = Doubt(until_ms=now_ms, by_ms=by_ms, since_s=self._clock.monotonic())
        return newest_ms

    def _tell_gap(self) -> None:
        """Once, and not before somebody asks: until all logs have been read the gap shrinks."""
        if self._gap is not None and not self._has_told_gap:
            self._has_told_gap = True
            _log.info(
                "the coordinator logs were silent before this broker started, or its clock is ahead: expiry and "
                "deletion by time do not count the silence until another broker's clock agrees",
                seconds=self._gap.by_ms / 1000,
            )

    def saw(self, stamp_ms: int) -> None:
        """Hear of the time of an entry in a coordinator log, whatever comes before it.

        Entries of this process are later than its start by its own clock, and say nothing. The others vouch for the
        time until they were written: what lies between the newest of them and this broker's clock is in doubt. Where
        another broker leads whose clock is behind this one's, that is by how much it is.
        """
        if stamp_ms >= self._began_ms or self._is_vouched:
            return
        if self._newest_ms is not None and stamp_ms <= self._newest_ms:
            return
        self._newest_ms, self._gap = stamp_ms, None
        gap_ms = self._clock.now_ms() - stamp_ms
        if gap_ms > TOLERANCE_MS:
            # Up to the start, not only to the stamp: clients write times of their own, which may be a little later.
            self._gap = Doubt(until_ms=self._began_ms, by_ms=gap_ms, since_s=self._clock.monotonic())

    # --- the clocks of others ----------------------------------------------------------------------------------------

    def compared(self, differences: Mapping[int, int]) -> None:
        """Hear how the clocks of other live brokers compare with this one's.

        Args:
            differences: by node id, milliseconds by which a clock is ahead of this broker's; negative where it is
                behind. The clocks that are furthest ahead and behind are among them.
        """
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        self._notice_jump(now_ms, now_s)
        self._differences = differences
        worst_ms = self.difference_ms
        if worst_ms > TOLERANCE_MS:
            if not self._is_held:
                node_id = max(differences, key=lambda one: abs(differences[one]))
                _log.warning(
                    "the clock of a live broker differs from this broker's: expiry and deletion by time wait until "
                    "they agree. Set the clock that is wrong",
                    broker=node_id,
                    ahead_s=differences[node_id] / 1000,
                )
            self._is_held = True
        elif worst_ms <= SETTLED_MS:
            if self._is_held:
                self._agree(now_ms, now_s)
            if differences:
                self._is_vouched, self._gap = True, None
        if self._is_held:
            self._worst_ms = max(self._worst_ms, worst_ms)

    def _agree(self, now_ms: int, now_s: float) -> None:
        """A clock that was behind may have written stamps that are too early, by as much as it was off."""
        _log.info(
            "the clocks of the live brokers agree again: expiry and deletion by time go on",
            differed_by_s=self._worst_ms / 1000,
        )
        self._add(Doubt(until_ms=now_ms, by_ms=self._worst_ms, since_s=now_s))
        self._is_held, self._worst_ms = False, 0
