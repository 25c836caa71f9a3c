"""The contract suite of coordinator stores finds what it is there to find."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from diskless_core.testing.coordinator_store import SHARD, TABLES, CoordinatorStoreContract
from tests.unit.testing.broken_coordinator_stores import (
    BrokenStore,
    OffsetFirstStore,
    OffsetLastStore,
    ShortKeysStore,
)


@pytest.mark.parametrize("broken", [OffsetFirstStore, OffsetLastStore])
def test_a_write_in_two_transactions_is_found(tmp_path: Path, broken: type[BrokenStore]) -> None:
    with pytest.raises(AssertionError, match="is not as that write left it"):
        CoordinatorStoreContract().test_a_process_killed_at_any_step_of_a_write_leaves_it_whole(
            partial(broken, tmp_path)
        )


def test_a_write_whose_offset_goes_ahead_is_found_by_kills_at_random_moments(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is not as that write left it"):
        CoordinatorStoreContract().test_a_process_killed_at_any_time_leaves_each_write_whole(
            partial(OffsetFirstStore, tmp_path)
        )


def test_keys_that_are_cut_off_are_found(tmp_path: Path) -> None:
    with closing(ShortKeysStore(tmp_path).open(SHARD, TABLES)) as store, pytest.raises(AssertionError):
        CoordinatorStoreContract().test_long_keys_are_kept_whole_and_in_order(store)
