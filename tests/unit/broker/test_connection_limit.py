"""How many connections clients may have, and what the log says of those that are refused."""

from __future__ import annotations

import asyncio
import resource

import pytest
from structlog.testing import capture_logs

from diskless_core.broker import open_files
from diskless_core.broker.connection_limit import WARNING_INTERVAL_S, ConnectionLimit
from tests.support.virtual_time import VirtualClock, run


@pytest.mark.parametrize(
    ("limit", "in_use", "room"), [(256, 50, 142), (1024, 50, 718), (1_048_576, 100, 1_047_452), (64, 60, 1)]
)
def test_a_reserve_is_kept_for_the_files_of_the_broker(limit, in_use, room):
    assert open_files.room_for_clients(limit, in_use) == room


def test_open_files_are_counted(tmp_path):
    before = open_files.in_use()
    with (tmp_path / "file").open("w"):
        assert open_files.in_use() == before + 1


def test_the_limit_is_raised_as_far_as_it_goes():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        open_files.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("max_connections", "room", "reason"),
    [(3, 10, "max.connections is reached"), (10, 3, "no more than 3 fit into the limit of open files")],
)
def test_the_lower_limit_holds_and_is_named(max_connections, room, reason):
    async def scenario():
        limit = ConnectionLimit(lambda: max_connections, room, VirtualClock(asyncio.get_running_loop()))
        with capture_logs() as logs:
            assert [limit.refuses(count, client="c") for count in (0, 2, 3, 4)] == [False, False, True, True]
        assert [log["reason"].startswith(reason) for log in logs] == [True]

    run(scenario)


def test_many_refusals_are_one_warning_now_and_then():
    async def scenario():
        limit = ConnectionLimit(lambda: 0, 10, VirtualClock(asyncio.get_running_loop()))
        with capture_logs() as logs:
            for _ in range(5):
                limit.refuses(0, client="a")
            await asyncio.sleep(WARNING_INTERVAL_S)
            limit.refuses(0, client="b")
        assert [(log["count"], log["last_client"]) for log in logs] == [(1, "a"), (5, "b")]

    run(scenario)
