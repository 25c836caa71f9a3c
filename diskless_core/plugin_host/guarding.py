"""Keeps what a backend raises to its noun's own errors: the core handles those, and takes others for its own defects.

It counts and times the calls, for the backend's health. It stands in the way of every call of a backend, and costs next
to nothing where nothing is raised.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator, Callable, Collection
from types import TracebackType
from typing import TypeVar

import structlog

from diskless_core.clock import Clock, SystemClock
from diskless_core.plugin.config import redact
from diskless_core.plugin_host.health import LAST_ERROR_CHARACTERS, Health, LastError, Result, RunningCall, State

T = TypeVar("T")

_log = structlog.get_logger(__name__)


START_EXPECTED_S = 10.0
"""A start that takes longer is said to be slow: it keeps the broker from starting."""

_STARTS = ("start", "start_reading")
_CORE = "diskless_core."


class Guard:
    """Makes contexts for calls of one backend: an exception that is not `due` leaves them as one that is.

    The original is its cause. Its traceback is logged once for each type. Cancellation and what ends the process pass.
    Contexts of one guard can overlap, on any threads.

    Args:
        health: the record of the backend, which names it.
        due: what the noun's interface says that its methods raise. Made from a message, and `retriable` if it takes it.
            None where the core takes whatever is raised: it is counted, and passes as it is.
        secrets: words that no message may have in it.
        expected_s: a call that takes longer counts as slow; None if there is no such limit.
    """

    def __init__(
        self,
        health: Health,
        due: type[Exception] | None,
        secrets: Collection[str] = (),
        *,
        clock: Clock | None = None,
        expected_s: float | None = None,
    ) -> None:
        self.health = health
        self.clock = clock or SystemClock()
        self._plugin = health.plugin
        self._due = due
        self._says_retriable = due is not None and "retriable" in inspect.signature(due.__init__).parameters
        self._secrets = secrets
        self._expected_s = expected_s
        self._reported: set[type[Exception]] = set()
        if health.since_ms is None:
            health.since_ms = self.clock.now_ms()

    def call(self, method: str, *, unless: Callable[[Exception], bool] | None = None) -> GuardedCall:
        """The context for one call of a method. It is used once.

        Args:
            unless: whether an error is the caller's own, which passes and is not put down to the backend.
        """
        return GuardedCall(self, RunningCall(method, self.clock.monotonic(), self._expected_of(method)), unless)

    def _expected_of(self, method: str) -> float | None:
        return START_EXPECTED_S if method in _STARTS else self._expected_s

    def in_stream(self, method: str) -> Callable[[Exception], None]:
        """What is told of errors of a stream after it was opened."""

        def check(error: Exception) -> None:
            self.health.stream_failed(self.note(method, error))
            self.check(error)

        return check

    def note(self, method: str, error: BaseException) -> Result:
        """How a call ended that raised this; an error is kept as the backend's last."""
        if not isinstance(error, Exception):
            return Result.CANCELLED if isinstance(error, asyncio.CancelledError | GeneratorExit) else Result.ERROR
        result = Result.ERROR if self._is_due(error) else Result.FOREIGN
        message = redact(_told(error), self._secrets)[:LAST_ERROR_CHARACTERS]
        self.health.last_error = LastError(self.clock.now_ms(), method, result, message)
        return result

    def _is_due(self, error: Exception) -> bool:
        """Where the noun has no error of its own, one that the core or the author API declares is due."""
        if self._due is not None:
            return isinstance(error, self._due)
        return type(error).__module__.startswith(_CORE)

    def check(self, error: Exception) -> None:
        """Raise what is due in the place of anything else.

        It is retriable unless the method is not there at all: only the backend knows better, and it did not say.
        """
        if self._due is not None and not isinstance(error, self._due):
            article = "an" if self._due.__name__[0] in "AEIOU" else "a"
            raise self._instead(
                self._due,
                f"the plugin {self._plugin} raised {_told(error)}, where {article} {self._due.__name__} was due",
                error,
                retriable=not isinstance(error, NotImplementedError),
            ) from error

    def check_start(self, error: Exception) -> None:
        """As `check`, for what a backend raises while it starts.

        It is retriable where the system said so, such as a refused connection: all else is likely to be a mistake.
        """
        if self._due is not None and not isinstance(error, self._due):
            raise self._instead(
                self._due,
                f"plugin {self._plugin} did not start: {_told(error)}",
                error,
                retriable=isinstance(error, OSError),
            ) from error

    def _instead(self, due: Callable[..., Exception], message: str, error: Exception, *, retriable: bool) -> Exception:
        message = redact(message, self._secrets)
        if type(error) not in self._reported:
            self._reported.add(type(error))
            text = "".join(traceback.format_exception(error))
            _log.error(
                "a plugin raised what its interface does not know",
                error=message,
                exception=redact(text, self._secrets),
            )
        return due(message, retriable=retriable) if self._says_retriable else due(message)


class GuardedCall:
    """The context of one call."""

    __slots__ = ("_call", "_guard", "_unless")

    def __init__(self, guard: Guard, call: RunningCall, unless: Callable[[Exception], bool] | None) -> None:
        self._guard = guard
        self._call = call
        self._unless = unless

    def __enter__(self) -> None:
        health = self._guard.health
        health.began(self._call)
        if self._call.method in _STARTS:
            health.state = State.STARTING

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        guard, call = self._guard, self._call
        if self._unless is not None and isinstance(error, Exception) and self._unless(error):
            guard.health.ended(call, guard.clock.monotonic(), Result.CANCELLED)
            return
        result = Result.OK if error is None else guard.note(call.method, error)
        guard.health.ended(call, guard.clock.monotonic(), result)
        is_start = call.method in _STARTS
        if is_start:
            guard.health.state = State.STARTED if error is None else State.FAILED
        elif call.method == "stop":
            guard.health.state = State.STOPPED
        if isinstance(error, Exception):
            if is_start:
                guard.check_start(error)
            else:
                guard.check(error)


class WatchedIterator(AsyncIterator[T]):
    """Yields what another iterator does. `on_error` is told of what that raises, and may raise something else."""

    def __init__(self, iterator: AsyncIterator[T], on_error: Callable[[Exception], None]) -> None:
        self._iterator = aiter(iterator)
        self._on_error = on_error

    async def __anext__(self) -> T:
        try:
            return await anext(self._iterator)
        except StopAsyncIteration:
            raise
        except Exception as error:
            self._on_error(error)
            raise

    async def aclose(self) -> None:
        """End the other iterator, if it is one that can be ended."""
        aclose = getattr(self._iterator, "aclose", None)
        if aclose is not None:
            await aclose()


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
