"""Counts what clients send and get, and says for how long each has to be throttled. Knows nothing of connections."""

from __future__ import annotations

from diskless_core.clock import Clock
from diskless_core.quotas.entities import QuotaKey, Quotas
from diskless_core.quotas.limits import Bucket, Limits
from diskless_core.quotas.rate import Rate, Window


class QuotaManager:
    """The quotas of one key, and who has used how much of them on this broker.

    Attributes:
        is_set: whether anybody at all is limited; ask it before anything else.
    """

    def __init__(self, key: QuotaKey, window: Window, clock: Clock) -> None:
        self.is_set = False
        self._key = key
        self._window = window
        self._clock = clock
        self._limits = Limits({})
        self._rates: dict[Bucket, Rate] = {}
        self._next_sweep_ms = 0

    def replace(self, quotas: Quotas) -> None:
        """These are the quotas from now on. What was counted before still counts."""
        limits = {entity: values[self._key] for entity, values in quotas.items() if self._key in values}
        self._limits = Limits(limits)
        self.is_set = bool(limits)

    def record(self, user: str, client_id: str, size_bytes: int) -> int:
        """Count what a client sent; how long it has to be throttled therefore, in milliseconds."""
        return self._record(user, client_id, size_bytes, refused_above=False)

    def admit(self, user: str, client_id: str, size_bytes: int) -> int:
        """Count what a client is to get, unless it is over its quota with that.

        Returns:
            0 when it may have it, else how long it has to be throttled, in milliseconds; then nothing is counted.
        """
        return self._record(user, client_id, size_bytes, refused_above=True)

    def most_bytes(self, user: str, client_id: str) -> float:
        """More than this at once is above the quota whatever came before; infinite for a client without a quota."""
        limit = self._limits.of(user, client_id)
        return float("inf") if limit is None else limit.bytes_per_second * self._window.complete_s

    def _record(self, user: str, client_id: str, size_bytes: int, *, refused_above: bool) -> int:
        limit = self._limits.of(user, client_id)
        if limit is None:
            return 0
        now_ms = int(self._clock.monotonic() * 1000)
        rate = self._rates.get(limit.bucket)
        if rate is None:
            self._sweep(now_ms)
            rate = self._rates[limit.bucket] = Rate(self._window)
        rate.record(size_bytes, now_ms)
        throttle_ms = rate.throttle_ms(limit.bytes_per_second, now_ms)
        if throttle_ms > 0 and refused_above:
            rate.record(-size_bytes, now_ms)
        return throttle_ms

    def _sweep(self, now_ms: int) -> None:
        """Client ids are what clients make up, so buckets that say nothing any more must not stay."""
        if now_ms >= self._next_sweep_ms:
            self._rates = {bucket: rate for bucket, rate in self._rates.items() if not rate.is_forgotten(now_ms)}
            self._next_sweep_ms = now_ms + self._window.length_ms


class QuotaManagers:
    """Those of producers and those of consumers."""

    def __init__(self, window: Window, clock: Clock) -> None:
        self.produce = QuotaManager(QuotaKey.PRODUCER_BYTE_RATE, window, clock)
        self.fetch = QuotaManager(QuotaKey.CONSUMER_BYTE_RATE, window, clock)

    def replace(self, quotas: Quotas) -> None:
        """These are all quotas from now on."""
        self.produce.replace(quotas)
        self.fetch.replace(quotas)
