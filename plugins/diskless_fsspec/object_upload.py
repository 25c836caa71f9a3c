"""An object that goes to a bucket in parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import ClassVar, Protocol, TypeVar

from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_fsspec.errors import http_status

T = TypeVar("T")

_GONE = (404, 410)


class Attempt(Protocol):
    """Awaits a request within its time-out, and translates its error; the cause is the client's own."""

    async def __call__(self, doing: str, work: Awaitable[T]) -> T: ...


class ObjectUpload(ABC):
    """The calls are `begin`, `send` for each part, `finish` with the last one; `abort` at any time.

    All raise `WalObjectStoreError`. Nobody sees the object before `finish` returns, all of it then.
    """

    sent_at_once: ClassVar[int]
    """How many parts may be on their way at once."""

    def __init__(self, attempt: Attempt, doing: str) -> None:
        self._attempt = attempt
        self.doing = doing

    @abstractmethod
    async def begin(self) -> None:
        """Ask the service for an upload."""

    @abstractmethod
    async def send(self, number: int, position: int, part: memoryview) -> None:
        """Send the part of this number, from 0 on, that begins at this position of the object."""

    @abstractmethod
    async def finish(self, number: int, position: int, part: memoryview) -> None:
        """Send the last part, and make an object of all. The others have been sent."""

    @abstractmethod
    async def abort(self) -> None:
        """Throw away what was sent. Nothing is on its way."""

    async def ask(self, work: Awaitable[T]) -> T:
        """Await a request that needs the upload. One that the service has forgotten can be begun again."""
        try:
            return await self._attempt(self.doing, work)
        except WalObjectStoreError as error:
            cause = error.__cause__
            if isinstance(cause, FileNotFoundError) or (isinstance(cause, Exception) and http_status(cause) in _GONE):
                raise WalObjectStoreError(f"{self.doing}: the service does not know of the upload any more") from cause
            raise
