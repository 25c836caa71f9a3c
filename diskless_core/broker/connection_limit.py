"""How many connections the clients of a broker may have. Those that are refused are told of now and then."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from diskless_core.clock import Clock

WARNING_INTERVAL_S = 10.0
"""Between two warnings: who is refused tries again at once."""

_log = structlog.get_logger(__name__)


class ConnectionLimit:
    """The lower one of two limits.

    Args:
        max_connections: `max.connections` as it is now.
        room: how many the limit of open files has room for.
    """

    def __init__(self, max_connections: Callable[[], int], room: int, clock: Clock) -> None:
        self._max_connections = max_connections
        self._room = room
        self._clock = clock
        self._unreported = 0
        self._silent_until = 0.0

    def refuses(self, connections: int, *, client: str) -> bool:
        """Whether there may be no more connections than these."""
        allowed = self._max_connections()
        if connections < min(allowed, self._room):
            return False
        self._unreported += 1
        if self._clock.monotonic() >= self._silent_until:
            reason = "max.connections is reached"
            if self._room < allowed:
                reason = f"no more than {self._room} fit into the limit of open files, raise `ulimit -n`"
            _log.warning("connections were refused", reason=reason, count=self._unreported, last_client=client)
            self._unreported = 0
            self._silent_until = self._clock.monotonic() + WARNING_INTERVAL_S
        return True
