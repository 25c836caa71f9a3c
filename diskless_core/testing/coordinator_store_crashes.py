"""The part of the `coordinator_store` contract about what a killed process leaves, and the fixture of all of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import ClassVar

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.coordinator_store import CoordinatorStore
from diskless_core.shards import DISKLESS
from diskless_core.testing.coordinator_store_writer import (
    WRITTEN,
    DoomedWriters,
    ForEver,
    StepByStep,
    assert_whole,
)

MakeStore = Callable[[], CoordinatorStore]

FIRST_SHARD = 2_000_000
"""Shards from this index on are written by processes that are killed; each takes a fresh one."""

MANY_ROWS = 400
FEW_ROWS = 3
WRITES = 2
KILLS = 8
NEVER = 2**62

_SEED = 20_260_101
_LONGEST_DELAY_S = 0.03


class StoreCrashContract:
    """What is there when a store is opened again; `CoordinatorStoreContract` includes it.

    Attributes:
        survives_reopen: whether what a closed store held is there when it is opened again. Its writing process is
            killed then, too, so `make_store` must be picklable: a `functools.partial` of something importable.
        survives_kill: whether each write that returned is there when the process was killed afterwards. That what is
            there is whole is required of every store.
    """

    survives_reopen: ClassVar[bool] = True
    survives_kill: ClassVar[bool] = False

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """A function that gives a new instance of the backend on the same place, as after a restart of the broker."""
        raise NotImplementedError("give this fixture in the subclass")

    def test_a_process_killed_at_any_time_leaves_each_write_whole(self, make_store: MakeStore) -> None:
        self.require_reopen()
        moments, shard = SystemClock(_SEED).random(), DISKLESS.shard(FIRST_SHARD)
        reached = 0
        with DoomedWriters(make_store) as writers:
            for _ in range(KILLS):
                delay_s = moments.uniform(0, _LONGEST_DELAY_S)
                returned = writers.run(ForEver(shard, MANY_ROWS, reached + 1, delay_s))
                with closing(make_store().open(shard, WRITTEN)) as store:
                    reached = assert_whole(store, MANY_ROWS)
                assert reached <= returned + 1
                assert not self.survives_kill or reached >= returned

    def test_a_process_killed_at_any_step_of_a_write_leaves_it_whole(self, make_store: MakeStore) -> None:
        """Halves the steps between two states that differ, until the step is found that makes the difference.

        A state between them, with a part of a write, lasts for some steps, and is met on the way.
        """
        self.require_reopen()
        shards = (DISKLESS.shard(index) for index in count(FIRST_SHARD + 1))

        def run(kill_at: int) -> tuple[int, int]:
            shard = next(shards)
            steps = writers.run(StepByStep(shard, FEW_ROWS, WRITES, kill_at))
            with closing(make_store().open(shard, WRITTEN)) as store:
                return steps, assert_whole(store, FEW_ROWS)

        with DoomedWriters(make_store) as writers:
            all_steps, at_last = run(NEVER)
            assert not self.survives_kill or at_last == WRITES
            unsearched = [(0, 0, all_steps, at_last)]
            while unsearched:
                first, before, last, after = unsearched.pop()
                if before != after and last - first > 1:
                    middle = (first + last) // 2
                    _, between = run(middle)
                    unsearched += [(first, before, middle, between), (middle, between, last, after)]

    def require_reopen(self) -> None:
        """Skip a test of what is kept, where nothing is."""
        if not self.survives_reopen:
            pytest.skip("this store does not claim to keep what a closed shard held (survives_reopen)")
