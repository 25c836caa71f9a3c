"""Calls of the coordinators' APIs on other nodes, and what their error codes mean to a caller.

(KIP-1164, "Diskless coordinator API".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from diskless_core.coordinator.errors import (
    ClockSkewError,
    CoordinatorError,
    CoordinatorLoadingError,
    EntryTooLargeError,
    NodeGoneError,
    NotCoordinatorError,
    OutcomeUnknownError,
    RequestRefusedError,
)
from diskless_core.coordinator.peers import AnswerLostError, PeerError, PeerGoneError, PeerRequest, PeerTransport
from diskless_core.protocol.codec import ApiRequest, ResponseT_co
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.framing import FrameError, check_structure
from diskless_core.protocol.messages import response_class

REQUEST_TIMEOUT_MS = 10_000
"""How long another node has for an answer; the TimeoutMs of each request."""

_TRANSFER_S = 5.0
"""On top of it, for the way there and back."""

MOVED_S = 1.0
"""How long the answer of a node is waited for once the log hints that another one leads."""

R = TypeVar("R")

_NO_ANSWER: dict[ErrorCode, type[CoordinatorError]] = {
    ErrorCode.NOT_COORDINATOR: NotCoordinatorError,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorLoadingError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: OutcomeUnknownError,
    ErrorCode.REQUEST_TIMED_OUT: OutcomeUnknownError,
    ErrorCode.INVALID_TIMESTAMP: ClockSkewError,
    ErrorCode.RECORD_LIST_TOO_LARGE: EntryTooLargeError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: CoordinatorError,
}
"""Codes by which a coordinator says that it does not answer. No operation has one of them for its result."""


def error_of(code: int, message: str | None = None) -> CoordinatorError | None:
    """The error behind a code that says that there is no answer; None for every other code."""
    known = code_of(code)
    kind = _NO_ANSWER.get(known)
    return kind(message or known.name) if kind is not None else None


def require_answer(code: int, message: str | None = None) -> ErrorCode:
    """The code, where it is a result.

    Raises:
        CoordinatorError: it says that there is no answer.
    """
    error = error_of(code, message)
    if error is not None:
        raise error
    return code_of(code)


def require_success(code: int, message: str | None = None) -> None:
    """Nothing, where the code is NONE.

    Raises:
        RequestRefusedError: it is INVALID_REQUEST.
        CoordinatorError: it is any other.
    """
    known = require_answer(code, message)
    if known is not ErrorCode.NONE:
        kind = RequestRefusedError if known is ErrorCode.INVALID_REQUEST else CoordinatorError
        raise kind(f"{known.name}: {message or 'the coordinator refused the request'}")


async def while_led(answer: Awaitable[R], until_led_elsewhere: Callable[[], Awaitable[None]]) -> R:
    """The answer of a node, which has to come soon once the log says that another one leads: it may be out of reach.

    Raises:
        OutcomeUnknownError: there is none. Whatever else `answer` raises is passed on.
    """

    async def until_too_late() -> None:
        await until_led_elsewhere()
        await asyncio.sleep(MOVED_S)

    asked, moved = asyncio.ensure_future(answer), asyncio.create_task(until_too_late())
    try:
        await asyncio.wait((asked, moved), return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        raise OutcomeUnknownError("there is no answer, and the log says that another node leads")
    finally:
        asked.cancel()
        moved.cancel()


class PeerCalls:
    """Requests to other nodes as messages, their failures as CoordinatorErrors."""

    def __init__(
        self, transport: PeerTransport, timeout_ms: int = REQUEST_TIMEOUT_MS, transfer_s: float = _TRANSFER_S
    ) -> None:
        self._transport = transport
        self._transfer_s = transfer_s
        self.timeout_ms = timeout_ms

    async def call(self, node_id: int, request: ApiRequest[ResponseT_co], version: int = 0) -> ResponseT_co:
        """The response message.

        Raises:
            CoordinatorError: as `exchange`.
        """
        body = bytes(request.encode(version=version))
        answer = memoryview(await self.exchange(node_id, PeerRequest(request.API_KEY, version, body)))
        expected = response_class(request)
        try:
            end = check_structure(expected, version, answer, 0)
            return expected.decode(answer[:end], version=version)
        except (FrameError, UnicodeDecodeError) as error:
            raise OutcomeUnknownError(f"node {node_id} sent a malformed answer: {error}") from error

    async def exchange(self, node_id: int, request: PeerRequest) -> bytes | memoryview:
        """The response's body.

        Raises:
            OutcomeUnknownError: the request was sent, and there is no answer.
            NodeGoneError: it was not sent, for nobody listens where the node did.
            CoordinatorError: it was not sent.
        """
        try:
            return await self._transport.send(node_id, request, self.timeout_ms / 1000 + self._transfer_s)
        except AnswerLostError as error:
            raise OutcomeUnknownError(f"node {node_id} gave no answer: {error}") from error
        except PeerGoneError as error:
            raise NodeGoneError(f"node {node_id} cannot be reached: {error}") from error
        except PeerError as error:
            raise CoordinatorError(f"node {node_id} cannot be reached: {error}") from error
