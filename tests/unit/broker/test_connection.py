"""What a connection holds in memory, and what becomes of it when a request or a client comes to no end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from diskless_core.broker import answer_memory, connection
from diskless_core.broker.answer_memory import AnswerMemory
from diskless_core.broker.connection import Answer, Connection, Server
from diskless_core.broker.frames import Frame
from diskless_core.broker.listening import Listening
from diskless_core.broker.receive_memory import ReceiveMemory
from diskless_core.clock import SystemClock
from diskless_core.config.broker import BrokerConfig
from diskless_core.metrics import Metrics
from diskless_core.pages import PagePool
from diskless_core.produce.backlog import Backlog

PATIENCE_S = 60
MIB = 1 << 20
LIMIT = 4 * MIB
PRODUCE, FETCH, OTHER, OFFSET_COMMIT = 0, 1, 2, 8

Run = Callable[[Coroutine[Any, Any, None]], None]
on_both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


def of_clients(api_key: int) -> bool:
    """What is processed one at a time for clients."""
    return api_key not in (PRODUCE, OFFSET_COMMIT)


def of_brokers(api_key: int) -> bool:
    """What is processed one at a time for other brokers."""
    return api_key == FETCH


def request(api_key: int, size: int = 8) -> bytes:
    return size.to_bytes(4, "big") + api_key.to_bytes(2, "big") + bytes(size - 2)


class Broker:
    """A server whose requests are begun at once, and answered when the test lets them be.

    Attributes:
        begun: the API keys of the requests in the order in which they were begun.
        answers_at_once: whether requests are answered as they are begun, with `answer_bytes` each.
    """

    def __init__(self, one_at_a_time: Callable[[int], bool] = of_clients, *, answer_limit: int = 256 * MIB) -> None:
        self.metrics = Metrics()
        self.backlog = Backlog(LIMIT, self.metrics, lambda: 0)
        self.begun: list[int] = []
        self.answers_at_once = False
        self.answer_bytes = MIB
        self.answers: list[tuple[int, asyncio.Future[Answer]]] = []
        limit: Any = SimpleNamespace(refuses=lambda *_, **__: False)
        self.server = Server(
            self,
            PagePool(0),
            ReceiveMemory(LIMIT, self.metrics),
            AnswerMemory(answer_limit, self.metrics),
            max_frame_bytes=100 * MIB,
            limit=limit,
            room=self.backlog,
            needs_room={PRODUCE},
            one_at_a_time=one_at_a_time,
            metrics=self.metrics,
        )

    def dispatch(self, frame: Frame, _connection: Connection) -> Answer | Awaitable[Answer]:
        api_key = int.from_bytes(frame.view[:2], "big")
        self.begun.append(api_key)
        if api_key == PRODUCE:
            self.backlog.grow(len(frame.view))
        if self.answers_at_once:
            return [memoryview(bytes(self.answer_bytes))]
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.answers.append((len(frame.view) if api_key == PRODUCE else 0, answer))
        return answer

    def answer(self, size: int = 4) -> None:
        """Answer the oldest request that has no answer."""
        settled, answer = self.answers.pop(0)
        answer.set_result([memoryview(bytes(size))])
        self.backlog.shrink(settled)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Callable[[], socket.socket]]:
    """Gives sockets of clients, which do not block. They are closed in the end."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(server, "PLAINTEXT"), "127.0.0.1", 0)
    clients: list[socket.socket] = []

    def connect() -> socket.socket:
        client = socket.create_connection(listening.sockets[0].getsockname())
        client.setblocking(False)
        clients.append(client)
        return client

    try:
        yield connect
    finally:
        for client in clients:
            client.close()
        for one in list(server.connections):
            one.give_up()
        listening.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def until_as_many(things: list[Any], count: int) -> None:
    """Until a list is so long, and has not grown for many turns of the loop."""
    await until(lambda: len(things) >= count)
    await until_steady(lambda: len(things))


async def until_steady(value: Callable[[], Any]) -> None:
    """Until something has not changed for many turns of the loop."""
    before, same = value(), 0
    while same < 100:
        await asyncio.sleep(0.001)
        before, same = value(), same + 1 if value() == before else 0


def test_a_request_that_is_given_up_ends_its_connection_instead_of_holding_up_what_follows() -> None:
    async def main() -> None:
        broker = Broker()
        async with serving(broker.server) as connect:
            client = connect()
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, request(OTHER))
            await until(lambda: bool(broker.answers))
            broker.answers[0][1].cancel()
            async with asyncio.timeout(PATIENCE_S):
                assert await loop.sock_recv(client, 1) == b""

    asyncio.run(main())


@pytest.mark.parametrize("reconnects", [False, True], ids=["many clients", "one that comes again and again"])
def test_what_is_accepted_and_what_waits_is_bounded_however_many_connections_send(*, reconnects: bool) -> None:
    async def main() -> None:
        broker = Broker()
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            sending: list[asyncio.Task[None]] = []
            for _ in range(40):
                client = connect()
                sending.append(asyncio.create_task(loop.sock_sendall(client, request(PRODUCE, MIB))))
                await until_steady(lambda: (broker.backlog.size_bytes, broker.server.receive_memory.size_bytes))
                if reconnects:
                    sending[-1].cancel()
                    await asyncio.wait([sending[-1]])
                    client.close()
            assert broker.backlog.size_bytes == LIMIT
            assert broker.server.receive_memory.size_bytes <= LIMIT + MIB + 40 * 256 * 1024
            if reconnects:
                return
            for _ in range(40):
                await until(lambda: bool(broker.answers))
                broker.answer()
                assert broker.backlog.size_bytes <= LIMIT
            await asyncio.gather(*sending)
        assert broker.begun == [PRODUCE] * 40
        assert broker.backlog.size_bytes == 0
        await until(lambda: broker.server.receive_memory.size_bytes == 0)

    asyncio.run(main())


def test_only_what_needs_room_waits_for_it_and_the_order_of_a_connection_is_kept() -> None:
    async def main() -> None:
        broker = Broker()
        broker.backlog.grow(LIMIT)
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            producer, consumer = connect(), connect()
            await loop.sock_sendall(producer, request(OTHER) + request(PRODUCE) + request(PRODUCE) + request(OTHER))
            await until(lambda: broker.begun == [OTHER])
            await loop.sock_sendall(consumer, request(FETCH))
            await until(lambda: broker.begun == [OTHER, FETCH])
            await until_steady(lambda: len(broker.begun))
            assert broker.begun == [OTHER, FETCH]
            broker.backlog.shrink(LIMIT)
            assert broker.begun == [OTHER, FETCH, PRODUCE, PRODUCE]
            broker.answer()
            await until(lambda: broker.begun == [OTHER, FETCH, PRODUCE, PRODUCE, OTHER])
            await loop.sock_sendall(producer, request(PRODUCE))
            await until(lambda: len(broker.begun) == 6)

    asyncio.run(main())


def test_a_connection_that_is_lost_while_its_request_waits_leaves_nothing_behind() -> None:
    async def main() -> None:
        broker = Broker()
        broker.backlog.grow(LIMIT)
        async with serving(broker.server) as connect:
            await asyncio.get_running_loop().sock_sendall(connect(), request(PRODUCE, MIB))
            await until(lambda: broker.server.receive_memory.size_bytes == MIB)
            for one in list(broker.server.connections):
                one.give_up()
            await until(lambda: not broker.server.connections)
            assert broker.server.receive_memory.size_bytes == 0
            broker.backlog.shrink(LIMIT)
            assert broker.begun == []

    asyncio.run(main())


@on_both_loops
def test_a_large_answer_is_made_only_when_the_client_has_taken_the_one_before(run: Run) -> None:
    async def main() -> None:
        broker = Broker()
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            client = connect()
            await loop.sock_sendall(client, request(FETCH) * 50 + request(OTHER))
            answered = 0
            for _ in range(50):
                await until_steady(lambda: len(broker.answers))
                if not broker.answers:
                    break  # the client's window and the transport's buffer are full
                assert len(broker.answers) == 1
                broker.answer(MIB)
                answered += 1
            assert answered < 20
            broker.answers_at_once = True
            received = 0
            async with asyncio.timeout(PATIENCE_S):
                while received < 51 * MIB:
                    received += len(await loop.sock_recv(client, MIB))
            assert broker.begun == [FETCH] * 50 + [OTHER]

    run(main())


@on_both_loops
def test_what_a_client_has_not_read_counts_until_it_has_read_it_or_is_gone(run: Run) -> None:
    async def main() -> None:
        broker = Broker()
        loop, memory = asyncio.get_running_loop(), broker.server.answer_memory
        async with serving(broker.server) as connect:
            reading, leaving, small = connect(), connect(), connect()
            for client in (reading, leaving):
                await loop.sock_sendall(client, request(FETCH))
                await until(lambda: bool(broker.answers))
                broker.answer(20 * MIB)
            await until(lambda: memory.lent_bytes == 40 * MIB)
            assert 20 * MIB < memory.size_bytes < 40 * MIB
            await loop.sock_sendall(small, request(FETCH))
            await until(lambda: bool(broker.answers))
            broker.answer(1000)
            assert len(await loop.sock_recv(small, MIB)) == 1000
            assert memory.lent_bytes == 40 * MIB
            leaving.close()
            await until(lambda: memory.lent_bytes == 20 * MIB)
            received = 0
            while received < 20 * MIB:
                received += len(await loop.sock_recv(reading, MIB))
            await until(lambda: memory.lent_bytes == 0)
            assert memory.size_bytes == 0

    run(main())


def test_an_answer_that_is_being_made_counts_until_its_connection_is_gone() -> None:
    async def main() -> None:
        broker = Broker()
        memory = broker.server.answer_memory
        async with serving(broker.server) as connect:
            client = connect()
            await asyncio.get_running_loop().sock_sendall(client, request(FETCH))
            await until(lambda: bool(broker.answers))
            [served] = broker.server.connections
            served.take(7 * MIB)
            served.take(5 * MIB)
            assert memory.size_bytes == 5 * MIB
            client.close()
            await until(lambda: memory.size_bytes == 0)
            served.take(5 * MIB)
            assert memory.size_bytes == 0

    asyncio.run(main())


@on_both_loops
def test_clients_that_do_not_read_make_way_for_one_that_does(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_memory, "CHECK_S", 0.01)
    monkeypatch.setattr(answer_memory, "WAITED_FOR_S", 0.05)

    async def main() -> None:
        broker = Broker(answer_limit=20 * MIB)
        loop, memory = asyncio.get_running_loop(), broker.server.answer_memory
        async with serving(broker.server) as connect:
            for _ in range(3):
                await loop.sock_sendall(connect(), request(FETCH))
                await until(lambda: bool(broker.answers))
                broker.answer(20 * MIB)
            await until(lambda: memory.is_full)
            assert await memory.wait(PATIENCE_S)
            assert memory.size_bytes < 20 * MIB
            assert len(broker.server.connections) < 3

    run(main())


def test_a_client_that_reads_nothing_is_let_go_when_its_connection_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLOSE_S", 0.05)

    async def main() -> None:
        broker = Broker()
        async with serving(broker.server) as connect:
            await asyncio.get_running_loop().sock_sendall(connect(), request(OTHER))
            await until(lambda: bool(broker.answers))
            broker.answer(50 * MIB)
            [served] = broker.server.connections
            await until(lambda: served.is_idle)
            served.close()
            await until(lambda: not broker.server.connections)

    asyncio.run(main())


@on_both_loops
def test_a_client_that_reads_slowly_gets_all_before_its_connection_ends(run: Run) -> None:
    size = 20 * MIB

    async def main() -> None:
        broker = Broker()
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            client = connect()
            await loop.sock_sendall(client, request(OTHER))
            await until(lambda: bool(broker.answers))
            broker.answer(size)
            [served] = broker.server.connections
            await until(lambda: served.is_idle)
            served.close()
            transport: Any = served._transport
            unread_bytes, received = transport.get_write_buffer_size(), 0
            while transport.get_write_buffer_size() == unread_bytes:
                received += len(await loop.sock_recv(client, MIB))
            served._end_unless_read(unread_bytes)
            while data := await loop.sock_recv(client, MIB):
                received += len(data)
            assert received == size

    run(main())


# --- one at a time ---------------------------------------------------------------------------------------------------


def test_of_a_client_one_request_is_under_way_at_a_time_but_of_produce_any_number() -> None:
    async def main() -> None:
        broker = Broker()
        async with serving(broker.server) as connect:
            sent = [PRODUCE, PRODUCE, OTHER, PRODUCE, FETCH, PRODUCE, OTHER]
            await asyncio.get_running_loop().sock_sendall(connect(), b"".join(map(request, sent)))
            for begun in (4, 4, 4, 6, 6, 7):  # the first two answers and the fourth are those of Produce
                await until_as_many(broker.begun, begun)
                assert broker.begun == sent[:begun]
                broker.answer()

    asyncio.run(main())


def test_requests_of_other_brokers_are_processed_in_parallel() -> None:
    async def main() -> None:
        broker = Broker(of_brokers)
        async with serving(broker.server) as connect:
            await asyncio.get_running_loop().sock_sendall(connect(), request(OTHER) * 100)
            await until(lambda: len(broker.begun) == 100)

    asyncio.run(main())


def test_the_listeners_of_clients_and_of_brokers_have_these_rules() -> None:
    async def main() -> None:
        broker = Broker()
        listening = Listening(BrokerConfig(), SystemClock(), broker.metrics)
        clients = listening.client_server(broker, lambda: 100, broker.backlog)
        brokers = listening.peer_server(broker)
        for api_key in range(100):
            assert clients.one_at_a_time(api_key) == of_clients(api_key)
            assert brokers.one_at_a_time(api_key) == of_brokers(api_key)

    asyncio.run(main())


@on_both_loops
def test_a_burst_of_requests_that_are_answered_at_once_leaves_turns_of_the_loop_to_others(run: Run) -> None:
    count = 2700

    async def main() -> None:
        broker = Broker()
        broker.answers_at_once, broker.answer_bytes = True, 4
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            client = connect()
            await loop.sock_sendall(client, request(OTHER, 20) * count)
            most, before = 0, 0
            async with asyncio.timeout(PATIENCE_S):
                while before < count:
                    await asyncio.sleep(0)
                    most, before = max(most, len(broker.begun) - before), len(broker.begun)
            assert most <= 2
            received = 0
            while received < 4 * count:
                received += len(await loop.sock_recv(client, MIB))

    run(main())


@on_both_loops
def test_a_client_that_reads_nothing_gets_few_answers_made_however_much_it_asks_for(run: Run) -> None:
    async def main() -> None:
        broker = Broker()
        broker.answers_at_once = True
        async with serving(broker.server) as connect:
            await asyncio.get_running_loop().sock_sendall(connect(), request(OTHER) * 200)
            await until(lambda: bool(broker.begun))
            await until_steady(lambda: len(broker.begun))
            assert len(broker.begun) < 20

    run(main())


def test_a_request_that_is_sent_ahead_takes_no_memory_before_the_one_before_it_is_answered() -> None:
    async def main() -> None:
        broker = Broker()
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            client = connect()
            sending = asyncio.create_task(loop.sock_sendall(client, request(FETCH) + request(OTHER, 20 * MIB)))
            await until(lambda: broker.begun == [FETCH])
            await until_steady(lambda: broker.server.receive_memory.size_bytes)
            assert broker.server.receive_memory.size_bytes == 0
            broker.answer()
            await sending
            await until(lambda: broker.begun == [FETCH, OTHER])

    asyncio.run(main())


@pytest.mark.parametrize("reads", [True, False], ids=["waits for its own request", "reads no answers"])
def test_a_client_that_has_its_own_request_wait_does_not_keep_large_ones_of_others_from_arriving(
    *, reads: bool
) -> None:
    async def main() -> None:
        broker = Broker()
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            first = connect()
            await loop.sock_sendall(first, request(FETCH))
            await until(lambda: broker.begun == [FETCH])
            ahead = request(FETCH, 50)
            [served] = broker.server.connections
            await loop.sock_sendall(first, ahead[:10])
            await until(lambda: bool(served._partial))
            await loop.sock_sendall(first, ahead[10:])
            if not reads:
                broker.answer(50 * MIB)
            others = [asyncio.create_task(loop.sock_sendall(connect(), request(OTHER, 2 * LIMIT))) for _ in range(3)]
            await until(lambda: broker.begun == [FETCH, OTHER, OTHER, OTHER])
            await asyncio.gather(*others)

    asyncio.run(main())


# --- the end of a connection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [MIB + 4, MIB // 2], ids=["waits for room", "is arriving"])
def test_a_request_that_has_not_begun_is_forgotten_as_soon_as_its_connection_is_to_end(arrived: int) -> None:
    async def main() -> None:
        broker = Broker()
        broker.backlog.grow(LIMIT)
        async with serving(broker.server) as connect:
            client = connect()
            await asyncio.get_running_loop().sock_sendall(client, request(OTHER) + request(PRODUCE, MIB)[:arrived])
            await until(lambda: broker.server.receive_memory.size_bytes >= arrived - 4)
            broker.answer(50 * MIB)
            [served] = broker.server.connections
            await until(lambda: served.is_idle)
            served.close()
            assert broker.server.receive_memory.size_bytes == 0
            broker.backlog.shrink(LIMIT)
            assert broker.begun == [OTHER]
            assert broker.server.connections == {served}, "it is gone before the client had time to read"

    asyncio.run(main())


@on_both_loops
def test_a_client_that_ends_sending_and_reads_nothing_is_let_go(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLOSE_S", 0.05)

    async def main() -> None:
        broker = Broker()
        broker.answers_at_once, broker.answer_bytes = True, 48 << 10
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            client = connect()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await until(lambda: bool(broker.server.connections))
            [served] = broker.server.connections
            transport: Any = served._transport
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            while not transport.get_write_buffer_size():
                await loop.sock_sendall(client, request(OTHER))
                await until_steady(lambda: (len(broker.begun), transport.get_write_buffer_size()))
            assert transport.is_reading()
            client.shutdown(socket.SHUT_WR)
            await until(lambda: not broker.server.connections)

    run(main())


@on_both_loops
def test_a_client_that_ends_sending_and_reads_gets_all_that_was_answered(run: Run) -> None:
    count = 300

    async def main() -> None:
        broker = Broker()
        broker.answers_at_once, broker.answer_bytes = True, 48 << 10
        loop = asyncio.get_running_loop()
        async with serving(broker.server) as connect:
            client = connect()
            await loop.sock_sendall(client, request(OTHER) * count)
            client.shutdown(socket.SHUT_WR)
            received = 0
            async with asyncio.timeout(PATIENCE_S):
                while data := await loop.sock_recv(client, MIB):
                    received += len(data)
            assert received == count * broker.answer_bytes

    run(main())
