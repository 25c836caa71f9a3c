"""What answers to Fetch take in memory, whoever reads them or does not. Bytes are counted, not seconds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from diskless_core.broker import answer_memory
from diskless_core.broker.answer_memory import SHARE, AnswerMemory
from diskless_core.metrics import Metrics
from tests.support.virtual_time import run

MIB = 1 << 20
LIMIT = 64 * MIB
BATCH = MIB


class Client:
    """A connection. It reads when the test says so."""

    def __init__(self, memory: AnswerMemory) -> None:
        self.peer = "client"
        self.unread_bytes = 0
        self.is_open = True
        self._memory = memory

    def let_go(self) -> None:
        self.is_open = False

    def is_answered(self, wanted: int = 50 * MIB, buffer: bytearray | None = None) -> int:
        """Make an answer and hand it over; returns its size: at least a batch."""
        size = max(BATCH, self._memory.allowed(wanted))
        self._memory.make(self, size)
        self.unread_bytes += size
        self._memory.make(self, 0)
        self._memory.unread(self, [memoryview(buffer if buffer is not None else bytearray(8))])
        return size

    def reads_all(self) -> None:
        self.unread_bytes = 0
        self._memory.read(self)


async def fetch(memory: AnswerMemory, client: Client) -> int:
    await memory.wait(1e6)
    return client.is_answered()


def test_a_reader_that_reads_gets_records_while_forty_others_read_nothing() -> None:
    async def main() -> None:
        memory = AnswerMemory(LIMIT, Metrics())
        stuck, reader = [Client(memory) for _ in range(40)], Client(memory)
        for client in stuck:
            await fetch(memory, client)
            assert memory.size_bytes <= LIMIT + BATCH
            assert await fetch(memory, reader) >= BATCH
            reader.reads_all()
        assert reader.is_open
        for client in stuck:
            client.reads_all()
        assert memory.size_bytes == 0
        assert memory.lent_bytes == 0

    run(main)


def test_alone_a_consumer_gets_what_it_asks_for_up_to_a_share_of_the_memory() -> None:
    memory = AnswerMemory(LIMIT, Metrics())
    assert memory.allowed(5 * MIB) == 5 * MIB
    assert memory.allowed(LIMIT) == LIMIT // SHARE


def test_connections_that_read_nothing_are_closed_before_one_that_reads_and_only_as_many_as_it_takes() -> None:
    async def main() -> None:
        metrics = Metrics()
        memory = AnswerMemory(LIMIT, metrics)
        stuck, slow = [Client(memory) for _ in range(12)], Client(memory)
        slow.is_answered(8 * MIB)
        for client in stuck:
            client.is_answered()
        assert memory.size_bytes > LIMIT // 2
        for _ in range(30):
            await asyncio.sleep(1)
            slow.unread_bytes -= answer_memory.PROGRESS_BYTES
        assert memory.size_bytes <= LIMIT // 2
        assert slow.is_open
        closed = [client for client in stuck if not client.is_open]
        assert 0 < len(closed) < len(stuck)
        assert metrics.answers_given_up._value.get() == len(closed)

    run(main)


def test_connections_that_read_nothing_stay_open_while_others_have_memory_enough() -> None:
    async def main() -> None:
        memory = AnswerMemory(LIMIT, Metrics())
        clients = [Client(memory) for _ in range(2)]
        for client in clients:
            client.is_answered(LIMIT // 4)
        assert memory.size_bytes <= LIMIT // 2
        await asyncio.sleep(3600)
        assert all(client.is_open for client in clients)

    run(main)


def test_a_fetch_that_finds_the_memory_full_is_answered_when_one_that_reads_nothing_is_closed() -> None:
    async def main() -> None:
        memory = AnswerMemory(LIMIT, Metrics())
        stuck = [Client(memory) for _ in range(LIMIT // BATCH)]
        for client in stuck:
            client.is_answered(BATCH)
        assert memory.is_full
        given_up = asyncio.create_task(memory.wait(1e6))
        await asyncio.sleep(0)
        given_up.cancel()
        answers = await asyncio.gather(*(fetch(memory, Client(memory)) for _ in range(10)))
        assert min(answers) >= BATCH
        assert memory.size_bytes <= LIMIT + BATCH
        assert 0 < sum(client.is_open for client in stuck) < len(stuck)

    run(main)


@pytest.mark.parametrize("shared", [True, False])
def test_objects_that_unread_answers_use_are_counted_once_and_copied_from_when_there_are_too_many(
    *, shared: bool
) -> None:
    async def main() -> None:
        memory = AnswerMemory(LIMIT, Metrics())
        clients = [Client(memory) for _ in range(8)]
        one = bytearray(LIMIT // 8)
        for client in clients:
            client.is_answered(8, one if shared else bytearray(LIMIT // 8))
        assert memory.lent_bytes == (LIMIT // 8 if shared else LIMIT)
        piece: Any = memoryview(one)[:8]
        [handed_over] = memory.lend([piece])
        assert (handed_over is piece) == shared
        for client in clients:
            client.reads_all()
        assert memory.lent_bytes == 0
        assert memory.lend([piece]) == [piece]

    run(main)
