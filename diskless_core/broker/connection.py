"""One client connection: bytes to frames, frames to the dispatcher, answers back in order. Knows no API.

Small frames are cut out of a receive buffer that all connections share; a large one is received straight into a
buffer of its own. Requests are answered in the order in which they came. Those of some APIs are processed concurrently.
Of all others a connection has one under way at a time: the next one is neither begun nor read to its end meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container
from typing import Any, Protocol, cast

import structlog

from diskless_core.broker.answer_memory import AnswerMemory
from diskless_core.broker.connection_limit import ConnectionLimit
from diskless_core.broker.frames import Frame
from diskless_core.broker.rack_traffic import ClientBytes
from diskless_core.broker.receive_memory import COUNTED_FROM_BYTES, ReceiveMemory
from diskless_core.metrics import Metrics
from diskless_core.pages import PagePool
from diskless_core.quotas.entities import ANONYMOUS

RECEIVE_BYTES = 64 << 10
MAX_CONCURRENT_REQUESTS = 4096
"""Of one connection; above it the connection is not read."""

LENT_FROM_BYTES = 64 << 10
"""A smaller answer is copied: the client may read it late, and it keeps no cached objects in memory meanwhile."""

CLOSE_S = 10.0
"""How long a client that is to go may read nothing of what was answered, before it is let go without."""

_SIZE_BYTES = 4
_API_KEY_BYTES = 2

_HOLDS_REQUESTS = frozenset({"answers", "turn", "room"})
"""Reasons to read nothing and to begin nothing of what has arrived. A connection has at most one of them at a time."""

_log = structlog.get_logger(__name__)

Answer = list[Any] | None
"""The pieces of a response frame; None where the protocol wants no answer."""


class CloseConnectionError(Exception):
    """The request cannot be answered by a response; the connection is closed and the reason logged."""


class Dispatcher(Protocol):
    """What a connection hands its frames to."""

    def dispatch(self, frame: Frame, connection: Connection) -> Answer | Awaitable[Answer]:
        """Begin a request; called in the order of arrival.

        Raises:
            CloseConnectionError: also from what is returned.
        """
        ...


class Room(Protocol):
    """Memory for requests that have begun and are not settled."""

    def wait_if_full(self, resume: Callable[[], None]) -> bool:
        """Whether it is full; then `resume` is called once, when it is not any more."""
        ...

    def forget(self, resume: Callable[[], None]) -> None:
        """Do not call `resume`, if it waits."""
        ...


class Server:
    """What the connections of a listener share.

    Args:
        room: for what has been accepted and is not settled; None where there is no limit to it.
        needs_room: the API keys of requests that are begun only while there is room.
        one_at_a_time: tells by the API key of which requests a connection has one under way at a time. The next one is
            begun when the answer to the one before has been handed to the transport and the client reads its answers.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        pool: PagePool,
        receive_memory: ReceiveMemory,
        answer_memory: AnswerMemory,
        *,
        max_frame_bytes: int,
        limit: ConnectionLimit,
        room: Room | None,
        needs_room: Container[int],
        one_at_a_time: Callable[[int], bool],
        metrics: Metrics,
    ) -> None:
        self.dispatcher = dispatcher
        self.pool = pool
        self.receive_memory = receive_memory
        self.answer_memory = answer_memory
        self.max_frame_bytes = max_frame_bytes
        self.limit = limit
        self.room = room
        self.needs_room = needs_room
        self.one_at_a_time = one_at_a_time
        self.metrics = metrics
        self.receive_buffer = bytearray(RECEIVE_BYTES + _SIZE_BYTES)
        self.connections: set[Connection] = set()


class _Slot:
    """The place of one request's answer in the order of its connection."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = False
        self.answer: Answer = None


class Connection(asyncio.BufferedProtocol):
    """The server's side of one TCP connection.

    Attributes:
        starved: what the last fetch's budget did not reach; see `Fetcher.fetch`.
        last_active: loop time of the last bytes received.
        user: the principal's name, by which quotas know the client.
        traffic: where the client's bytes are counted; None before its first request.
    """

    def __init__(self, server: Server, listener: str) -> None:
        self._server = server
        self.listener = listener
        self.peer = "?"
        self.starved: list[Any] = []
        self.last_active = 0.0
        self.user = ANONYMOUS
        self.traffic: ClientBytes | None = None
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._frame: Frame | None = None
        self._filled = 0
        self._partial = b""
        self._held: Frame | None = None
        self._slots: deque[_Slot] = deque()
        self._alone: _Slot | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused_for: set[str] = set()
        self._is_lost = False
        self._mute: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None
        self._lost_listeners: list[Callable[[], None]] = []

    # --- the transport's calls -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.last_active = self._loop.time()
        if self._server.limit.refuses(len(self._server.connections), client=self.peer):
            self._server.metrics.connections_refused.inc()
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._server.metrics.connections_accepted.inc()
        self._server.metrics.connections.inc()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the base class's signature
        if self in self._server.connections:
            self._server.connections.remove(self)
            self._server.metrics.connections.dec()
        self._is_lost = True
        self._forget_unbegun()
        self._server.answer_memory.end(self)
        for task in self._tasks:
            task.cancel()
        for timer in (self._mute, self._end):
            if timer is not None:
                timer.cancel()
        for listener in self._lost_listeners:
            listener()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the base class's signature
        if self._frame is not None:
            return self._frame.view[self._filled :]
        kept = len(self._partial)
        self._server.receive_buffer[:kept] = self._partial
        return memoryview(self._server.receive_buffer)[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._loop.time()
        self._server.metrics.received_bytes.inc(nbytes)
        if self._frame is None:
            self._cut(memoryview(self._server.receive_buffer)[: len(self._partial) + nbytes])
            return
        self._filled += nbytes
        if self._filled == len(self._frame.view):
            frame, self._frame = self._frame, None
            self._begin(frame, _api_key(frame.view))
            if self._held is None:
                self._server.receive_memory.end(self)
            else:
                self._server.receive_memory.keep(self, frame.touched_bytes(self._filled))
        else:
            self._hold(self._frame)

    def eof_received(self) -> bool:
        """The client sends nothing more. What has been answered is still written, as `close` says."""
        self.close()
        return False

    def pause_writing(self) -> None:
        self._pause("writing")

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits()
        self._server.answer_memory.read(self)
        self._resume("writing")
        self._go_on_after("answers")

    # --- frames --------------------------------------------------------------------------------------------------

    def _cut(self, received: memoryview) -> None:
        position = 0
        has_begun_one = False
        while len(received) - position >= _SIZE_BYTES:
            size = int.from_bytes(received[position : position + _SIZE_BYTES], "big", signed=True)
            if not 0 < size <= self._server.max_frame_bytes:
                self._server.metrics.frames_refused.inc()
                self.close(f"a frame of {size} bytes is not accepted, see socket.request.max.bytes")
                return
            start = position + _SIZE_BYTES
            here = min(size, len(received) - start)
            missing = size - here
            if missing and here < _API_KEY_BYTES:
                break
            api_key = _api_key(received[start : start + here])
            is_alone = self._server.one_at_a_time(api_key)
            if is_alone and self._holds_back(has_begun_one=has_begun_one):
                break
            if missing and size >= COUNTED_FROM_BYTES and not self._server.receive_memory.may_begin(self, missing):
                self._pause("receive_memory")
                break
            frame = Frame(size, self._server.pool)
            position = start + here
            frame.view[:here] = received[start:position]
            if missing:
                self._frame, self._filled = frame, here
                self._hold(frame)
                break
            self._begin(frame, api_key)
            has_begun_one = has_begun_one or is_alone
            if self.is_closing:
                return
            if self._held is not None:
                break
        self._partial = bytes(received[position:])

    def _holds_back(self, *, has_begun_one: bool) -> bool:
        """Whether a request of which there is one at a time has to wait. It then stays in what has been read so far.

        The rest of it is not read, so a large request takes no memory while it waits for its own client.
        """
        if self._alone is not None or "writing" in self._paused_for:
            self._pause("answers")
        elif has_begun_one:  # and answered: others have their turn before the next one
            self._pause("turn")
            self._loop.call_soon(self._go_on_after, "turn")
        else:
            return False
        return True

    def _hold(self, frame: Frame) -> None:
        if len(frame.view) >= COUNTED_FROM_BYTES:
            missing = len(frame.view) - self._filled
            if not self._server.receive_memory.hold(self, frame.touched_bytes(self._filled), missing):
                self._pause("receive_memory")

    def _begin(self, frame: Frame, api_key: int) -> None:
        """Begin a request, or hold it until there is room. Nothing is read, and no other one begun, meanwhile."""
        if api_key in self._server.needs_room and self._waits_for_room():
            self._held = frame
            self._pause("room")
        else:
            self._dispatch(frame, is_alone=self._server.one_at_a_time(api_key))

    def _waits_for_room(self) -> bool:
        return self._server.room is not None and self._server.room.wait_if_full(self._room_again)

    def _room_again(self) -> None:
        """There is room for the request that is held, most likely."""
        frame, self._held = self._held, None
        if frame is None:
            return
        self._resume("room")
        self._begin(frame, _api_key(frame.view))
        if self._held is None:
            self._server.receive_memory.end(self)
            if not self.is_closing:
                self._cut(memoryview(self._partial))

    def _go_on_after(self, reason: str) -> None:
        """The reason to begin nothing is over, most likely."""
        if reason in self._paused_for and not self.is_closing:
            self._resume(reason)
            self._cut(memoryview(self._partial))

    def _dispatch(self, frame: Frame, *, is_alone: bool) -> None:
        slot = _Slot()
        self._slots.append(slot)
        if is_alone:
            self._alone = slot
        try:
            answer = self._server.dispatcher.dispatch(frame, self)
        except CloseConnectionError as error:
            self.close(str(error))
            return
        finally:
            frame.release()
        if answer is None or isinstance(answer, list):
            self._answer(slot, answer)
        elif isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda done: self._settle(slot, done))
        else:
            task = self._loop.create_task(self._await(slot, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(self._slots) >= MAX_CONCURRENT_REQUESTS:
            self._pause("requests")

    async def _await(self, slot: _Slot, answer: Awaitable[Answer]) -> None:
        try:
            self._answer(slot, await answer)
        except CloseConnectionError as error:
            self.close(str(error))
        except asyncio.CancelledError:  # whoever follows would wait for this answer for ever
            self.close("the request was given up")
            raise

    def _settle(self, slot: _Slot, done: asyncio.Future[Answer]) -> None:
        if done.cancelled():
            self.close("the request was given up")
            return
        error = done.exception()
        if error is None:
            self._answer(slot, done.result())
        else:
            self.close(str(error))

    def _answer(self, slot: _Slot, answer: Answer) -> None:
        slot.done, slot.answer = True, answer
        if self._slots and self._slots[0] is slot:
            self._flush()

    def _flush(self) -> None:
        pieces: list[Any] = []
        has_made = False
        while self._slots and self._slots[0].done:
            slot = self._slots.popleft()
            if slot is self._alone:
                self._alone, has_made = None, True
            if slot.answer is not None:
                pieces += slot.answer
        if pieces and self._transport is not None and not self.is_closing:
            size = sum(map(len, pieces))
            self._server.metrics.sent_bytes.inc(size)
            self._write(self._transport, pieces, size)
        if has_made:
            self._server.answer_memory.make(self, 0)
        if len(self._slots) < MAX_CONCURRENT_REQUESTS:
            self._resume("requests")
        if self._alone is None:
            self._go_on_after("answers")

    def _write(self, transport: asyncio.Transport, pieces: list[Any], size: int) -> None:
        if size < LENT_FROM_BYTES:
            transport.write(b"".join(pieces))
            return
        memory = self._server.answer_memory
        pieces = memory.lend(pieces)
        # The transport keeps all buffers of an answer until the last byte has gone, so it has to tell of that one.
        transport.set_write_buffer_limits(0)
        transport.writelines(pieces)
        if "writing" in self._paused_for:
            memory.unread(self, pieces)
        else:
            transport.set_write_buffer_limits()

    # --- memory of answers ---------------------------------------------------------------------------------------

    async def wait(self, limit_s: float) -> bool:
        """See `AnswerRoom`; so are the two that follow."""
        return await self._server.answer_memory.wait(limit_s)

    def allowed(self, wanted_bytes: int) -> int:
        return self._server.answer_memory.allowed(wanted_bytes)

    def take(self, size_bytes: int) -> None:
        if not self._is_lost:  # else nothing would give it back
            self._server.answer_memory.make(self, size_bytes)

    @property
    def unread_bytes(self) -> int:
        """How much of what was answered the client has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def let_go(self) -> None:
        """End the connection at once, with the answers that the client has not read."""
        if self._transport is not None:
            self._transport.abort()

    # --- flow and end --------------------------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def on_lost(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the connection is gone; at once, if it is."""
        if self.is_closing:
            listener()
        else:
            self._lost_listeners.append(listener)

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._slots

    @property
    def requests_under_way(self) -> int:
        """How many requests have not been answered, or only behind one that has not."""
        return len(self._slots)

    def close(self, reason: str | None = None) -> None:
        """End the connection. With a reason, it is logged: the client did something that has no other answer.

        What has been answered is still written, as long as the client reads it. Requests that have not begun are
        forgotten at once, with their memory.
        """
        if self._transport is None or self._transport.is_closing():
            return
        if reason is not None:
            _log.warning("a connection was closed", client=self.peer, reason=reason)
        self._transport.close()
        self._forget_unbegun()
        self._end = self._loop.call_later(CLOSE_S, self._end_unless_read, self._transport.get_write_buffer_size())

    def _forget_unbegun(self) -> None:
        for frame in (self._frame, self._held):
            if frame is not None:
                frame.release()
        self._frame = self._held = None
        self._partial = b""
        if self._server.room is not None:
            self._server.room.forget(self._room_again)
        self._server.receive_memory.end(self)

    def _end_unless_read(self, unread_bytes: int) -> None:
        """The connection still has answers that the client reads slowly, or not at all."""
        if self._transport is None:
            return
        unread = self._transport.get_write_buffer_size()
        if unread < unread_bytes:
            self._end = self._loop.call_later(CLOSE_S, self._end_unless_read, unread)
        else:
            self._transport.abort()

    def stop_reading(self) -> None:
        """Accept no more requests; those under way are still answered."""
        self._pause("shutdown")

    def mute(self, milliseconds: int) -> float:
        """Read nothing for so long (KIP-219); requests under way are still answered.

        Returns:
            The loop time when reading goes on: later, where the connection is muted for longer already.
        """
        until = self._loop.time() + milliseconds / 1000
        if self._mute is not None:
            until = max(until, self._mute.when())
            self._mute.cancel()
        self._mute = self._loop.call_at(until, self._unmute)
        self._pause("quota")
        return until

    def _unmute(self) -> None:
        self._mute = None
        self._resume("quota")

    @property
    def is_held_up(self) -> bool:
        """Whether the broker does not read from it, though the client may send and reads its answers."""
        return not self._paused_for <= {"receive_memory", "writing", "answers"}

    def go_on(self) -> None:
        """There is room for a large request again: for the rest of it, or to begin it."""
        self._resume("receive_memory")
        if self._frame is None and self._paused_for.isdisjoint(_HOLDS_REQUESTS) and not self.is_closing:
            self._cut(memoryview(self._partial))

    def give_up(self) -> None:
        """End the connection whose large request takes too long while others wait for the memory."""
        _log.warning("a connection was closed", client=self.peer, reason="its request came too slowly for the memory")
        self.let_go()

    def wait_for_start(self) -> None:
        """Read nothing more until `has_started`: a request waits for the broker's start, and what follows, for it."""
        self._pause("start")

    def has_started(self) -> None:
        """End what `wait_for_start` began."""
        self._resume("start")

    def _pause(self, reason: str) -> None:
        if not self._paused_for and not self.is_closing and self._transport is not None:
            self._transport.pause_reading()
        self._paused_for.add(reason)

    def _resume(self, reason: str) -> None:
        if reason not in self._paused_for:
            return
        self._paused_for.discard(reason)
        if not self._paused_for and not self.is_closing and self._transport is not None:
            self._transport.resume_reading()


def _api_key(frame: memoryview) -> int:
    return int.from_bytes(frame[:_API_KEY_BYTES], "big")
