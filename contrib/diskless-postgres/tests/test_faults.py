"""What becomes of the log when server, connections, or rows fail."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from postgres_server import OpenLog, Server
from tcp_relay import Relay

from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, EntryRefusedError
from diskless_core.shards import CLUSTER_SHARD
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    HintStream,
    batch_of,
    next_batches,
    numbered_batches,
    read_all,
    read_batches,
    reading,
    same_content,
    settled_bytes,
    started,
)
from diskless_postgres.backend import Backend
from diskless_postgres.postgres_log import PostgresLog
from diskless_postgres.sessions import OutcomeUnknownError, Pool, Session
from diskless_postgres.view import Head

LIMIT_S = 120
INSERT = b"INSERT INTO"


def running(log: PostgresLog) -> Backend:
    """What a started log consists of."""
    assert log._backend is not None
    return log._backend


async def append_until_taken(log: CoordinatorLog, batch: bytes) -> int:
    """Until it is acknowledged. It may be there more than once, as after any unknown outcome."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                return (await log.append(SHARD, [batch]))[0]
            except CoordinatorLogError as error:
                if isinstance(error, EntryRefusedError):
                    raise
                await asyncio.sleep(0.05)


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_again_and_again(
    own_server: Server, open_log: OpenLog
) -> None:
    acknowledged: dict[int, bytes] = {}
    end = asyncio.Event()

    async def append_for_ever(log: CoordinatorLog) -> None:
        number = 0
        while not end.is_set():
            batch = batch_of(b"%d" % number)
            acknowledged[await append_until_taken(log, batch)] = settled_bytes(batch)
            number += 1

    async with started(open_log(own_server.settings())) as log:
        async with asyncio.TaskGroup() as group:
            group.create_task(append_for_ever(log))
            for crash in range(3):
                async with asyncio.timeout(LIMIT_S):
                    while len(acknowledged) < 30 * (crash + 1):  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                await asyncio.to_thread(own_server.kill_9)
                await asyncio.to_thread(own_server.start)
            end.set()
        entries = {entry.offset: settled_bytes(entry.data) for entry in await read_all(log, SHARD)}
    assert acknowledged.items() <= entries.items()
    assert list(entries) == list(range(len(entries)))


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    with Relay(server.port) as relay:
        relay.pass_on()
        yield relay


async def test_an_append_whose_answer_is_lost_is_found_and_not_done_twice(
    server: Server, schema: str, relay: Relay, open_log: OpenLog
) -> None:
    async with started(open_log(server.settings(schema) | {"port": str(relay.port)})) as log:
        await log.append(SHARD, [batch_of(b"first")])
        relay.lose_answers_from(lambda data: b"second" in data)
        appending = asyncio.create_task(log.append(SHARD, [batch_of(b"second")]))
        async with asyncio.timeout(LIMIT_S):
            while server.execute(f"SELECT count(*) FROM {schema}.entries") != [(2,)]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        relay.pass_on()
        relay.drop()
        assert await appending == [1]
        assert await log.append(SHARD, [batch_of(b"third")]) == [2]
        expected = [batch_of(b"first"), batch_of(b"second"), batch_of(b"third")]
        assert same_content(await read_all(log, SHARD), expected)


async def test_an_append_that_never_arrived_is_sent_again(
    server: Server, schema: str, relay: Relay, open_log: OpenLog
) -> None:
    async with started(open_log(server.settings(schema) | {"port": str(relay.port)})) as log:
        await log.append(SHARD, [batch_of(b"first")])
        relay.hang()
        appending = asyncio.create_task(log.append(SHARD, [batch_of(b"second")]))
        await asyncio.to_thread(relay.wait_until_held)
        relay.drop()
        relay.pass_on()
        assert await appending == [1]
        assert same_content(await read_all(log, SHARD), [batch_of(b"first"), batch_of(b"second")])


@pytest.mark.parametrize("number", range(3))
async def test_an_entry_that_was_pruned_before_its_outcome_was_known_is_not_appended_again(
    number: int, server: Server, schema: str, relay: Relay, open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when some more questions about it, so many, are not answered."""
    async with (
        started(open_log(server.settings(schema) | {"port": str(relay.port)})) as log,
        started(open_log(server.settings(schema), 2)) as other,
    ):
        await log.append(SHARD, [batch_of(b"first")])
        relay.lose_answers_from(lambda data: b"second" in data)
        appending = asyncio.create_task(log.append(SHARD, [batch_of(b"second")]))
        async with asyncio.timeout(LIMIT_S):
            while (await other.bounds(SHARD)).end != 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await other.append(SHARD, numbered_batches(20))
        await other.prune(SHARD, 15)
        writer = running(log).writer(SHARD)
        ask, unanswered = writer._ask, iter(range(number))

        async def ask_in_vain() -> Head:
            if next(unanswered, None) is not None:
                raise OutcomeUnknownError("not answered")
            return await ask()

        monkeypatch.setattr(writer, "_ask", ask_in_vain)
        relay.pass_on()
        relay.drop()
        with pytest.raises(CoordinatorLogError, match="nobody knows whether"):
            await appending
        assert (await log.bounds(SHARD)).end == 22


async def test_connections_that_an_operator_ends_cost_nothing(server: Server, schema: str, open_log: OpenLog) -> None:
    batches = numbered_batches(60)
    async with started(open_log(server.settings(schema))) as log, reading(log, SHARD, 0) as reader:
        for number, batch in enumerate(batches):
            if number % 10 == 5:
                server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'diskless'"
                )
            assert await log.append(SHARD, [batch]) == [number]
        entries = []
        while len(entries) < len(batches):
            entries += await next_batches(reader)
    assert same_content(entries, batches)


async def test_a_frozen_server_ends_an_append_in_time_and_is_used_again(own_server: Server, open_log: OpenLog) -> None:
    async with started(open_log(own_server.settings() | {"append.timeout.ms": 1000})) as log:
        await log.append(SHARD, [batch_of(b"first")])
        frozen = own_server.freeze()
        try:
            async with asyncio.timeout(30):
                with pytest.raises(CoordinatorLogError, match="may or may not"):
                    await log.append(SHARD, [batch_of(b"perhaps")])
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        await append_until_taken(log, batch_of(b"on"))
        values = [settled_bytes(entry.data) for entry in await read_all(log, SHARD)]
        assert values.count(settled_bytes(batch_of(b"perhaps"))) <= 1
        assert values[0] == settled_bytes(batch_of(b"first"))


async def test_a_failover_that_lost_the_tail_stops_the_shard(own_server: Server, open_log: OpenLog) -> None:
    settings = own_server.settings()
    async with started(open_log(settings)) as log:
        await log.append(SHARD, numbered_batches(5))
    own_server.stop()
    shorter = own_server.copy_data("shorter")
    own_server.start()
    log = open_log(settings)
    async with started(log):
        await log.append(SHARD, [batch_of(b"lost")])
        async with reading(log, SHARD, 6) as reader:
            waiting = asyncio.create_task(next_batches(reader))
            own_server.stop()
            own_server.put_back(shorter)
            await asyncio.to_thread(own_server.promote)
            with pytest.raises(CoordinatorLogError, match="went back"):
                await waiting
        for what in (log.append(SHARD, [batch_of(b"more")]), log.bounds(SHARD)):
            with pytest.raises(CoordinatorLogError, match="went back"):
                await what


async def test_an_old_primary_that_still_takes_writes_is_not_used(own_server: Server, open_log: OpenLog) -> None:
    """What it would acknowledge would be lost. No entry tells: nothing was appended to the new one yet."""
    async with started(open_log(own_server.settings())) as log:
        await log.append(SHARD, [batch_of(b"first")])
        own_server.stop()
        old_primary = own_server.copy_data("old-primary")
        await asyncio.to_thread(own_server.promote)
        assert (await log.bounds(SHARD)).end == 1  # of the new one
        own_server.stop()
        own_server.put_back(old_primary)
        await asyncio.to_thread(own_server.start)
        async with started(open_log(own_server.settings(), 2)):
            pass  # who has not seen the new one cannot tell
        for what in (log.append(SHARD, [batch_of(b"lost")]), log.bounds(SHARD)):
            with pytest.raises(CoordinatorLogError, match="old primary"):
                await what


async def test_a_promotion_is_followed_on_connections_that_are_open(own_server: Server, open_log: OpenLog) -> None:
    """To the old primary, that is, which may take writes still."""
    async with started(open_log(own_server.settings())) as log:
        await log.append(SHARD, [batch_of(b"first")])
        backend = running(log)
        assert backend._timeline is not None
        (kept,) = backend._writes._free
        await backend._follow(replace(backend._timeline, number=backend._timeline.number + 1))
        assert not kept.is_usable
        assert backend._writes._free == []


async def test_a_shard_that_is_damaged_does_not_keep_news_of_others_back(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    async with started(open_log(server.settings(schema))) as log:
        for shard in (SHARD, OTHER_SHARD):
            await log.append(shard, [batch_of(b"first")])
        async with reading(log, SHARD, 1) as reader, reading(log, OTHER_SHARD, 1) as other_reader:
            waiting = [asyncio.create_task(next_batches(one)) for one in (reader, other_reader)]
            async with asyncio.timeout(LIMIT_S):
                while not all(running(log).view(shard).waiting for shard in (SHARD, OTHER_SHARD)):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            server.execute(f"DELETE FROM {schema}.entries WHERE shard = %s", str(SHARD))
            async with started(open_log(server.settings(schema), 2)) as other:
                await other.append(OTHER_SHARD, [batch_of(b"second")])
            async with asyncio.timeout(LIMIT_S):
                assert same_content(await waiting[1], [batch_of(b"second")])
            waiting[0].cancel()
            await asyncio.wait(waiting)


async def test_a_connection_that_was_shut_is_not_used_again(server: Server, schema: str, open_log: OpenLog) -> None:
    async with started(open_log(server.settings(schema))) as log:
        pool = running(log).reads
        with pytest.raises(OutcomeUnknownError, match="warned: hear"):
            async with pool.session() as session:
                await session.do("DO $$BEGIN RAISE WARNING 'hear'; END$$")
        async with pool.session() as session:
            assert await session.do("SELECT 1") == ([(1,)], 1)


async def test_a_connection_that_is_opened_while_the_log_stops_is_closed(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    async with started(open_log(server.settings(schema))) as log:
        session = await running(log).open_session()
        begun, opened = asyncio.Event(), asyncio.Event()

        async def open_late() -> Session:
            begun.set()
            await opened.wait()
            return session

        pool = Pool(open_late, 1)
        asking = asyncio.create_task(pool.rows("SELECT 1"))
        await begun.wait()
        await pool.close()
        opened.set()
        with pytest.raises(CoordinatorLogError, match="stopped"):
            await asking
        assert session.connection.closed


async def test_a_lost_tail_that_others_have_written_anew_is_found(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    """The end is further than it was: only the chain of entries tells."""
    async with started(open_log(server.settings(schema))) as log:
        await log.append(SHARD, [batch_of(b"a"), batch_of(b"b")])
        async with reading(log, SHARD, 0) as reader:
            await next_batches(reader)
            server.execute(f"DELETE FROM {schema}.entries WHERE entry_offset = 1")
            server.execute(
                f"UPDATE {schema}.shards SET end_offset = 1, last = (SELECT nonce FROM {schema}.entries), fence = 9"
            )
            async with started(open_log(server.settings(schema), 2)) as other:
                assert await other.append(SHARD, [batch_of(b"x"), batch_of(b"y")]) == [1, 2]
            with pytest.raises(CoordinatorLogError, match="went back"):
                await next_batches(reader)
        with pytest.raises(CoordinatorLogError, match="went back"):
            await log.append(SHARD, [batch_of(b"c")])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("UPDATE {s}.entries SET data = data || '\\x00' WHERE entry_offset = 3", "damaged"),
        ("UPDATE {s}.entries SET checksum = checksum + 1 WHERE entry_offset = 3", "damaged"),
        ("DELETE FROM {s}.entries WHERE entry_offset = 3", "missing"),
        ("DELETE FROM {s}.entries WHERE entry_offset >= 3", "missing"),
        ("DELETE FROM {s}.shards", "restore it"),
    ],
)
async def test_damage_is_an_error_and_never_taken_for_the_end(
    damage: str, told: str, server: Server, schema: str, open_log: OpenLog
) -> None:
    async with started(open_log(server.settings(schema))) as log:
        await log.append(SHARD, numbered_batches(6))
    server.execute(damage.format(s=schema))
    async with started(open_log(server.settings(schema))) as log:
        with pytest.raises(CoordinatorLogError, match=told):
            await (log.append(SHARD, [batch_of(b"a")]) if "shards" in damage else read_batches(log, SHARD, 0, 7))
        with pytest.raises(CoordinatorLogError, match=told):
            await (log.bounds(SHARD) if "shards" in damage else read_batches(log, SHARD, 3, 4))


async def test_a_leader_whose_session_ends_is_replaced_and_a_paused_one_too(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    one, two = open_log(server.settings(schema), 1), open_log(server.settings(schema), 2)
    async with started(one), started(two), HintStream(one, CLUSTER_SHARD) as first:
        async with asyncio.timeout(LIMIT_S):
            while first.newest is None or first.newest.node_id != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            async with HintStream(two, CLUSTER_SHARD) as second:
                assert one._backend is not None
                assert one._backend.nominations is not None
                task = one._backend.nominations._task
                assert task is not None
                one._backend.nominations._pause_s = 1000  # it gives no sign of life, as one that is paused
                one._backend.nominations.wake()
                while second.newest is None or second.newest.node_id != 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert second.newest.generation > 1
                one._backend.nominations._pause_s = 0.1
                one._backend.nominations.wake()
                while first.newest != second.newest:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


async def test_a_node_that_withdraws_while_it_says_that_it_lives_is_not_nominated_any_more(
    server: Server, schema: str, open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(open_log(server.settings(schema))) as log, HintStream(log, CLUSTER_SHARD) as hints:
        async with asyncio.timeout(LIMIT_S):
            while hints.newest is None or hints.newest.node_id != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            beat, nominations = running(log).statements.beat, running(log).nominations
            assert nominations is not None
            assert nominations._session is not None
            do, withdrawn = nominations._session.do, asyncio.Event()

            async def withdraw_meanwhile(statement: Any, parameters: Any = None) -> tuple[list[tuple[Any, ...]], int]:
                if statement == beat and not withdrawn.is_set():
                    await hints.ask_again(candidate=False)
                    withdrawn.set()
                return await do(statement, parameters)

            monkeypatch.setattr(nominations._session, "do", withdraw_meanwhile)
            await withdrawn.wait()
            while hints.newest.node_id is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_statement_under_way_cannot_take_place_after_its_fence(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    """Pruned and written on meanwhile: a paused append meets a free offset, and does not take it."""
    async with started(open_log(server.settings(schema))) as log:
        await log.append(SHARD, numbered_batches(3))
        assert log._backend is not None
        writer = log._backend.writer(SHARD)
        stale = writer._head
        assert stale is not None
        async with started(open_log(server.settings(schema), 2)) as other:
            await other.append(SHARD, numbered_batches(20))
            await other.prune(SHARD, 15)
        assert not await writer._swap(stale, log._context.clock.new_uuid(), [batch_of(b"late")])
        assert await log.append(SHARD, [batch_of(b"on")]) == [23]


async def test_a_thousand_pending_entries_are_one_statement(server: Server, schema: str, open_log: OpenLog) -> None:
    batches = numbered_batches(1000, size_bytes=200)
    async with started(open_log(server.settings(schema))) as log:
        assert list(await log.append(SHARD, batches)) == list(range(1000))
        [(appends,)] = server.execute(f"SELECT count(DISTINCT nonce) FROM {schema}.entries")
        assert appends == 1
        assert same_content(await read_all(log, SHARD), batches)


async def test_tables_that_were_made_anew_lose_nothing_to_a_broker_that_prunes_those_before(
    open_log: OpenLog, server: Server, schema: str
) -> None:
    """The cluster was moved to another log and back, and the log that was left was deleted in between."""
    async with started(open_log(server.settings(schema))) as log:
        await log.append(SHARD, numbered_batches(10))
        backend = running(log)
        log_id, anew = backend.log_id, uuid.uuid4()
        async with backend.reads.session() as session:
            await session.do(f'UPDATE "{backend.statements.schema}".log SET id = %s', [anew])
        await log.prune(SHARD, 8)
        assert (await log.bounds(SHARD)).start == 0
        assert len(await read_all(log, SHARD)) == 10
        await backend.reads.rows(backend.statements.delete, {"shard": str(SHARD), "log": anew, "lowest": 0, "below": 8})
        assert len(await read_all(log, SHARD)) == 10, "nothing goes above the log start"
        async with backend.reads.session() as session:
            await session.do(f'UPDATE "{backend.statements.schema}".log SET id = %s', [log_id])
        await log.prune(SHARD, 8)
        assert len(await read_batches(log, SHARD, 8, 2)) == 2
        with pytest.raises(CoordinatorLogError):
            await read_batches(log, SHARD, 0, 1)
