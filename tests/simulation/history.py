"""What happened in a simulated world, line by line, with a digest that tells whether two histories are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Violation(AssertionError):  # noqa: N818  # what a checker found, not what went wrong in it
    """The system broke one of its promises."""


class History:
    """Lines with their virtual time. The first broken promise ends the history."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.lines: list[str] = []
        self.violation: Violation | None = None
        self._now_s = now_s
        self._digest = hashlib.blake2b(digest_size=16)

    def note(self, who: str, what: str) -> None:
        line = f"{self._now_s():10.3f} {who:<10} {what}"
        self.lines.append(line)
        self._digest.update(line.encode())

    def violated(self, promise: str) -> None:
        """A promise was broken; whoever runs the world stops at the first one."""
        self.note("CHECKER", promise)
        if self.violation is None:
            self.violation = Violation(promise)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
