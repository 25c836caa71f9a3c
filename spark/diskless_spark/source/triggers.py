"""When a stream begins a micro-batch although it would be a small one. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class TriggerGate:
    """Holds micro-batches back until they have enough records, or none has begun for long.

    Attributes:
        min_offsets: so many are enough.
        max_delay_ms: after that time, any number is.
        opened_ms: when a micro-batch was let through last, by the clock of `opens`; None: none was yet.
    """

    min_offsets: int
    max_delay_ms: int
    opened_ms: int | None = None

    def opens(self, offsets: int, now_ms: int) -> bool:
        """Whether so many offsets are let through. The first ones are, as those of Spark's Kafka source."""
        is_late = self.opened_ms is None or now_ms - self.opened_ms >= self.max_delay_ms
        if not offsets or (offsets < self.min_offsets and not is_late):
            return False
        self.opened_ms = now_ms
        return True
