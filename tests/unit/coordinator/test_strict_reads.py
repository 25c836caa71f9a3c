"""A replica that has to know everything that was committed before it is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError
from diskless_core.coordinator.strict_reads import MARKS, PATIENCE_S, catch_up
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from tests.support.virtual_time import run


class Replica:
    """One that has read up to offset 3 of a log that ends at 5, and whose end is unknown for so many questions."""

    id = "diskless-0"
    obstacle = None

    def __init__(self, unknown: int = 0) -> None:
        self.unknown = unknown
        self.next_offset = 3
        self.failure: str | None = None

    async def marked_end(self) -> int:
        if self.unknown:
            self.unknown -= 1
            raise CoordinatorLogError("the mark was pruned meanwhile")
        return 5


def caught_up(replica: Replica, **later: Any) -> float:
    """Have it catch up; a second later it has changed. How many seconds it took."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1, lambda: [setattr(replica, name, value) for name, value in later.items()])
        shard: Any = replica
        await catch_up([shard])
        return loop.time()

    return run(main)


def test_a_replica_that_lags_is_waited_for() -> None:
    assert 1 <= caught_up(Replica(), next_offset=5) < 1.1


def test_a_mark_that_is_pruned_before_it_is_confirmed_is_set_anew() -> None:
    assert 1 <= caught_up(Replica(unknown=MARKS - 1), next_offset=6) < 1.1


def test_a_log_that_never_says_where_it_ends_is_an_error() -> None:
    with pytest.raises(CoordinatorLogError, match="pruned meanwhile"):
        caught_up(Replica(unknown=MARKS))


def test_a_replica_that_does_not_get_there_is_an_error() -> None:
    with pytest.raises(CoordinatorLoadingError, match=r"up to offset 3, and not to its end at 5: it lags behind"):
        caught_up(Replica())
    assert PATIENCE_S > 1
    with pytest.raises(CoordinatorError, match="the store is damaged"):
        caught_up(Replica(), failure="the store is damaged")
