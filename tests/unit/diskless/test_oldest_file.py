"""The oldest live object of a shard: the same answer as from reading all rows, with few look-ups."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from diskless_core.diskless.oldest_file import oldest_live_ms
from diskless_core.diskless.tables import LIVE_FILES, LiveFile
from diskless_core.plugin.coordinator_store import ShardStore, TableChanges
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from diskless_core.wal.format import WalFormatError, created_ms_of, object_key

KEYS = st.one_of(
    st.builds(
        object_key,
        st.sampled_from(["wal", "wal/prod", "wal.a"]),
        st.one_of(st.integers(0, 3), st.integers(1_700_000_000_000, 1_700_000_000_009), st.just(10**13)),
        st.builds(uuid.UUID, int=st.one_of(st.integers(0, 5), st.integers(0, 2**128 - 1))),
    ),
    st.sampled_from(["k1", "5-x", "wal/zz/7-short", "wal/00/0000000000009", "wal/00/"]),
)


def store_of(keys: list[str]) -> ShardStore:
    store = MemoryCoordinatorStore().open(DISKLESS.shard(0), [LIVE_FILES.spec])
    store.write({LIVE_FILES.name: TableChanges(put=[LIVE_FILES.row((key,), LiveFile(1, 0, (0,))) for key in keys])}, 1)
    return store


def created_ms(key: str) -> list[int]:
    try:
        return [created_ms_of(key)]
    except WalFormatError:
        return []


@given(keys=st.lists(KEYS, max_size=12, unique=True))
def test_it_is_the_earliest_time_of_all_keys_that_tell_one(keys: list[str]) -> None:
    times = [time_ms for key in keys for time_ms in created_ms(key)]
    assert oldest_live_ms(store_of(keys)) == min(times, default=None)


def test_it_looks_once_into_each_spread() -> None:
    keys = [object_key("wal", 1_000 + number, uuid.UUID(int=(number % 4) << 120 | number)) for number in range(400)]
    store = store_of(keys)
    looked = 0
    scan = store.scan

    def counted(*args: object, **more: object) -> object:
        nonlocal looked
        looked += 1
        return scan(*args, **more)

    store.scan = counted
    assert oldest_live_ms(store) == 1_000
    assert looked == 5
