"""The built-in offset assignment."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin_host.discovery import BUILT_IN_DISTRIBUTION, installed_entry_points
from diskless_core.plugin_host.manager import PluginManager

MANAGER = PluginManager(entry for entry in installed_entry_points() if entry.distribution == BUILT_IN_DISTRIBUTION)
CONTEXT = PluginContext(node_id=1, data_dir=Path("unused"), log_dir=Path("unused"), clock=SystemClock())


def assignment():
    descriptor = MANAGER.get("offset_assignment", "sequential").descriptor
    return descriptor.factory(CONTEXT, descriptor.settings())


def test_batches_follow_each_other_in_order_of_arrival():
    assert assignment().assign(10, [3, 1, 5]) == [10, 13, 14]


def test_no_batches_get_no_offsets():
    assert assignment().assign(10, []) == []


@given(next_offset=st.integers(0, 2**60), counts=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=20))
def test_offsets_have_neither_gaps_nor_overlaps(next_offset, counts):
    offsets = assignment().assign(next_offset, counts)

    ends = [offset + count for offset, count in zip(offsets, counts, strict=True)]
    assert offsets == [next_offset, *ends[:-1]]
