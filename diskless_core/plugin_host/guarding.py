"""Keeps what a backend raises to its noun's own errors: the core handles those, and takes others for its own defects.

It stands in the way of every call of a backend, and costs next to nothing where nothing is raised.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import AsyncIterator, Callable, Collection
from types import TracebackType
from typing import TypeVar

import structlog

from diskless_core.plugin.config import redact

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Guard:
    """A context for calls of one backend: an exception that is not `due` leaves it as one that is.

    The original is its cause. Its traceback is logged once for each type. Cancellation and what ends the process pass.
    Contexts of one guard can overlap, on any threads.

    Args:
        plugin: `<noun>.<name>`.
        due: what the noun's interface says that its methods raise. Made from a message, and `retriable` if it takes it.
        secrets: words that no message may have in it.
    """

    def __init__(self, plugin: str, due: type[Exception], secrets: Collection[str] = ()) -> None:
        self._plugin = plugin
        self._due = due
        self._make: Callable[..., Exception] = due
        self._says_retriable = "retriable" in inspect.signature(due.__init__).parameters
        self._secrets = secrets
        self._reported: set[type[Exception]] = set()
        self.starting = _Starting(self)

    def __enter__(self) -> None:
        """Nothing is held."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.check(error)

    def check(self, error: Exception) -> None:
        """Raise what is due in the place of anything else.

        It is retriable unless the method is not there at all: only the backend knows better, and it did not say.
        """
        if not isinstance(error, self._due):
            article = "an" if self._due.__name__[0] in "AEIOU" else "a"
            raise self._instead(
                f"the plugin {self._plugin} raised {_told(error)}, where {article} {self._due.__name__} was due",
                error,
                retriable=not isinstance(error, NotImplementedError),
            ) from error

    def check_start(self, error: Exception) -> None:
        """As `check`, for what a backend raises while it starts.

        It is retriable where the system said so, such as a refused connection: all else is likely to be a mistake.
        """
        if not isinstance(error, self._due):
            raise self._instead(
                f"plugin {self._plugin} did not start: {_told(error)}", error, retriable=isinstance(error, OSError)
            ) from error

    def _instead(self, message: str, error: Exception, *, retriable: bool) -> Exception:
        message = redact(message, self._secrets)
        if type(error) not in self._reported:
            self._reported.add(type(error))
            text = "".join(traceback.format_exception(error))
            _log.error(
                "a plugin raised what its interface does not know",
                error=message,
                exception=redact(text, self._secrets),
            )
        return self._make(message, retriable=retriable) if self._says_retriable else self._make(message)


class _Starting:
    """The context for `start`."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        """Nothing is held."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._guard.check_start(error)


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
