"""Servers and tables that a start refuses, and what it says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path

import psycopg
import pytest
from postgres_server import PASSWORD, OpenLog, Server, free_port
from tcp_relay import Relay

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogNotFoundError
from diskless_core.testing.coordinator_log_tools import SHARD, batch_of, read_all, same_content, started
from diskless_postgres.backend import _CREATION_LOCK
from diskless_postgres.config import PostgresLogSettings

LIMIT_S = 60


async def refusal(open_log: OpenLog, settings: dict[str, object]) -> str:
    """What a start says that does not succeed. Never a password."""
    log = open_log(settings)
    with pytest.raises(CoordinatorLogError) as refused:
        async with asyncio.timeout(LIMIT_S), started(log):
            pass
    assert PASSWORD not in str(refused.value) + repr(refused.value) + repr(refused.value.__cause__)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"), [("fsync", "off"), ("full_page_writes", "off"), ("default_transaction_read_only", "on")]
)
async def test_a_server_that_loses_commits_is_refused_and_one_that_a_session_can_mend_is_not(
    name: str, value: str, open_log: OpenLog
) -> None:
    with Server({name: value}) as server:
        if name == "default_transaction_read_only":
            async with started(open_log(server.settings())) as log:
                await log.append(SHARD, [batch_of(b"a")])
        else:
            assert f"{name}=off" in await refusal(open_log, server.settings())


async def test_a_server_with_asynchronous_commits_is_used_with_synchronous_ones(open_log: OpenLog) -> None:
    with Server({"synchronous_commit": "off"}) as server:
        async with started(open_log(server.settings())) as log:
            await log.append(SHARD, [batch_of(b"a")])
            server.kill_9()
            server.start()
            assert same_content(await read_all(log, SHARD), [batch_of(b"a")])


async def test_a_role_that_owns_its_database_and_nothing_else_suffices(server: Server, open_log: OpenLog) -> None:
    """As the documentation sets it up."""
    server.execute(f"CREATE ROLE plain LOGIN PASSWORD '{PASSWORD}'")
    server.execute("CREATE DATABASE plain OWNER plain")
    async with started(open_log(server.settings(user="plain", dbname="plain"))) as log:
        await log.append(SHARD, [batch_of(b"a")])
        assert same_content(await read_all(log, SHARD), [batch_of(b"a")])


async def test_a_standby_is_refused(own_server: Server, open_log: OpenLog) -> None:
    async with started(open_log(own_server.settings())):
        pass
    own_server.stop()
    signal_file = own_server.data / "standby.signal"
    signal_file.touch()
    signal_file.chmod(0o666)
    own_server.start()
    assert "standby" in await refusal(open_log, own_server.settings())


async def test_unlogged_tables_are_refused(server: Server, schema: str, open_log: OpenLog) -> None:
    async with started(open_log(server.settings(schema))):
        pass
    server.execute(f"ALTER TABLE {schema}.entries SET UNLOGGED")
    assert "UNLOGGED" in await refusal(open_log, server.settings(schema))


async def test_another_clusters_log_is_refused(server: Server, schema: str, open_log: OpenLog) -> None:
    async with started(open_log(server.settings(schema))):
        pass
    server.execute(f"UPDATE {schema}.log SET id = gen_random_uuid()")
    assert "another cluster's" in await refusal(open_log, server.settings(schema))


async def test_tables_of_a_later_format_are_refused(server: Server, schema: str, open_log: OpenLog) -> None:
    async with started(open_log(server.settings(schema))):
        pass
    server.execute(f"UPDATE {schema}.log SET format = 2")
    assert "format 2" in await refusal(open_log, server.settings(schema))


async def test_a_wrong_password_is_said_at_once_and_not_tried_again(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    async with asyncio.timeout(20):  # it would wait 10 minutes for a server that is not there
        told = await refusal(
            open_log,
            server.settings(schema) | {"password": PASSWORD + " not", "initialization.timeout.ms": 600_000},
        )
    assert "password authentication failed" in told


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"password": None}, "no password supplied"),
        ({"sslmode": "require"}, "does not support SSL"),
        ({"user": "nobody"}, "password authentication failed"),
        ({"dbname": "nowhere"}, "does not exist"),
    ],
)
async def test_settings_that_no_waiting_mends_are_said_at_once(
    wrong: dict[str, object], said: str, server: Server, schema: str, open_log: OpenLog
) -> None:
    async with asyncio.timeout(20):  # it would wait 10 minutes for a server that is not there
        told = await refusal(open_log, server.settings(schema) | wrong | {"initialization.timeout.ms": 600_000})
    assert said in told


async def test_a_file_with_no_password_in_it_is_said(
    tmp_path: Path, server: Server, schema: str, open_log: OpenLog
) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    settings = server.settings(schema) | {"password": None, "password.file": str(file)}
    assert "cannot connect" in await refusal(open_log, settings)


async def test_a_start_waits_for_another_broker_that_makes_the_tables(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    """Longer than the server lets a statement wait for a lock."""
    log = open_log(server.settings(schema) | {"initialization.timeout.ms": 600_000})
    seen: set[int] = set()
    with psycopg.connect(**server.parameters(), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [_CREATION_LOCK])
        starting = asyncio.create_task(log.start())
        try:
            async with asyncio.timeout(LIMIT_S):
                while len(seen) < 2 and not starting.done():
                    waiting = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                    seen |= {pid for (pid,) in server.execute(waiting)}
                    await asyncio.sleep(0.05)
        finally:
            other.execute("SELECT pg_advisory_unlock(%s)", [_CREATION_LOCK])
            await starting
        await log.append(SHARD, [batch_of(b"a")])
        await log.stop()


async def test_a_log_that_is_gone_is_refused_and_none_is_made_in_its_place(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    async with started(open_log(server.settings(schema))):
        pass
    server.execute(f"DROP SCHEMA {schema} CASCADE")
    assert "restore it" in await refusal(open_log, server.settings(schema))
    assert server.execute("SELECT to_regnamespace(%s)::text", schema) == [(None,)]


async def test_a_connection_that_breaks_while_a_pooler_is_looked_for_is_opened_again(
    server: Server, schema: str, open_log: OpenLog
) -> None:
    with Relay(server.port) as relay:
        relay.pass_on()
        probed = threading.Event()

        def is_probe(data: bytes) -> bool:
            if b"current_setting('diskless.probe'" in data:
                probed.set()
            return probed.is_set()

        relay.lose_answers_from(is_probe)
        log = open_log(server.settings(schema) | {"port": str(relay.port)})
        starting = asyncio.create_task(log.start())
        assert await asyncio.to_thread(probed.wait, LIMIT_S)
        relay.drop()  # returns when the relay has begun to lose answers
        relay.pass_on()
        relay.drop()
        await starting
        await log.stop()


async def test_a_server_that_is_not_there_is_said_after_a_while(open_log: OpenLog, server: Server) -> None:
    told = await refusal(open_log, server.settings() | {"port": str(free_port()), "initialization.timeout.ms": 100})
    assert "cannot connect" in told


async def test_a_start_waits_for_a_server_that_starts(own_server: Server, open_log: OpenLog) -> None:
    own_server.stop()
    async with asyncio.TaskGroup() as group:
        log = open_log(own_server.settings())
        starting = group.create_task(log.start())
        await asyncio.to_thread(own_server.start)
        await starting
    await log.stop()


async def test_the_password_is_shown_nowhere(tmp_path: Path, server: Server, schema: str, open_log: OpenLog) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    given = server.settings(schema) | {"password.file": str(file)}
    assert PASSWORD not in repr(PostgresLogSettings.model_validate(server.settings(schema)))
    with pytest.raises(ValueError, match="exclude each other") as refused:
        PostgresLogSettings.model_validate(given)
    assert PASSWORD not in str(refused.value)
    del given["password"]
    async with started(open_log(given)) as log:
        await log.append(SHARD, [batch_of(b"a")])
    assert "cannot connect" in await refusal(open_log, given | {"password.file": str(tmp_path / "none")})


async def test_a_tool_finds_no_log_where_there_is_none(server: Server, schema: str, open_log: OpenLog) -> None:
    log = open_log(server.settings(schema))
    with pytest.raises(LogNotFoundError):
        await log.start_reading()
    assert server.execute("SELECT to_regnamespace(%s)::text", schema) == [(None,)]


async def test_a_tool_reads_beside_a_broker(server: Server, schema: str, open_log: OpenLog) -> None:
    async with started(open_log(server.settings(schema))) as log:
        await log.append(SHARD, [batch_of(b"a")])
        tool = open_log(server.settings(schema), -1)
        await tool.start_reading()
        try:
            assert same_content(await read_all(tool, SHARD), [batch_of(b"a")])
            with pytest.raises(CoordinatorLogError, match="reading only"):
                await tool.append(SHARD, [batch_of(b"b")])
        finally:
            await tool.stop()


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_a_pooler_is_refused_in_transaction_mode_alone(
    mode: str, server: Server, schema: str, open_log: OpenLog, tmp_path: Path
) -> None:
    port = free_port()
    folder = server.folder / f"pooler-{mode}"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "users").write_text(f'"diskless" "{PASSWORD}"\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\n"
        f"auth_type=scram-sha-256\nauth_file={folder}/users\npool_mode={mode}\ndefault_pool_size=20\nunix_socket_dir=\n"
        "ignore_startup_parameters=extra_float_digits\n"
    )
    user = "postgres" if os.geteuid() == 0 else None
    with (folder / "log").open("wb") as out:
        command = ["/usr/sbin/pgbouncer", str(folder / "ini")]
        pooler = subprocess.Popen(command, user=user, stderr=out, stdout=out)  # noqa: ASYNC220
    try:
        settings = server.settings(schema) | {"port": str(port)}
        if mode == "transaction":
            assert "pool_mode=session" in await refusal(open_log, settings)
        else:
            async with started(open_log(settings)) as log:
                await log.append(SHARD, [batch_of(b"a")])
                assert same_content(await read_all(log, SHARD), [batch_of(b"a")])
    finally:
        pooler.terminate()
        pooler.wait()
