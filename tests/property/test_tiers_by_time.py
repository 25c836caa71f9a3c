"""ListOffsets and Fetch over both tiers, against a walk through the remaining records."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.diskless.commands import ListedOffset, SpecialTimestamp, TimestampType
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import RecordData
from tests.support.produce_path import RULES, key_of, records_of
from tests.support.tiered_path import TieredPath, small_chunks
from tests.support.virtual_time import START_MS, run

ON_BROKER_TIME = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
KEY = key_of(0)


class Known(NamedTuple):
    offset: int
    timestamp: int


objects = st.tuples(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=4), st.booleans()
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), objects),
        st.tuples(st.just("produce"), objects),
        st.tuples(st.just("tier"), st.tuples(st.floats(0, 1), st.sampled_from([0, 150, 4096]))),
        st.tuples(st.just("delete"), st.floats(0, 1)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, chunk_bytes=st.sampled_from([1, 200, 1 << 20]), max_bytes=st.sampled_from([1, 150, 1 << 20]))
def test_both_tiers_answer_as_one_log(steps: list[tuple[str, object]], chunk_bytes: int, max_bytes: int) -> None:
    async def main() -> None:
        async with TieredPath(linger_ms=20) as path:
            known: list[Known] = []
            for step, what in steps:
                known = await take(path, step, what, known)
                await check_times(path, known)
                await check_records(path, known, max_bytes)

    with small_chunks(chunk_bytes):
        run(main)


async def take(path: TieredPath, step: str, what: object, known: list[Known]) -> list[Known]:
    shard = path.node.shard
    head = shard.head(KEY)
    assert head is not None
    match step, what:
        case "produce", (list(batches), bool(on_broker_time)):
            return known + await produce(path, batches, on_broker_time=on_broker_time)
        case "tier", (float(share), int(interval_bytes)) if head.local_start_offset < head.next_offset:
            through = head.local_start_offset + int(share * (head.next_offset - head.local_start_offset - 1))
            await path.tier(through=through, interval_bytes=interval_bytes)
        case "delete", float(share) if known:
            deleted = await shard.delete_records(KEY, known[0].offset + int(share * len(known)))
            assert deleted.error is ErrorCode.NONE
            return [one for one in known if one.offset >= deleted.log_start_offset]
    return known


async def produce(path: TieredPath, batches: list[list[int]], *, on_broker_time: bool) -> list[Known]:
    encoded = [
        record_batch.build(
            [RecordData(key=None, value=b"v", timestamp=START_MS + back) for back in backs], timestamp_ms=START_MS
        )
        for backs in batches
    ]
    rules = ON_BROKER_TIME if on_broker_time else RULES
    results = await path.produce(*((0, one) for one in encoded), rules=rules)
    return [
        Known(result.base_offset + delta, result.append_time if on_broker_time else START_MS + back)
        for backs, result in zip(batches, results, strict=True)
        for delta, back in enumerate(backs)
    ]


async def check_times(path: TieredPath, known: list[Known]) -> None:
    for timestamp in {0, *(one.timestamp + more for one in known for more in (0, 1))}:
        found = next((one for one in known if one.timestamp >= timestamp), None)
        expected = ListedOffset(offset=found.offset, timestamp=found.timestamp) if found else ListedOffset()
        assert await path.lookup.list(path.node.shard, KEY, timestamp) == expected
    latest = max(known, key=lambda one: one.timestamp, default=None)
    expected = ListedOffset(offset=latest.offset, timestamp=latest.timestamp) if latest else ListedOffset()
    assert await path.lookup.list(path.node.shard, KEY, SpecialTimestamp.MAX_TIMESTAMP) == expected


async def check_records(path: TieredPath, known: list[Known], max_bytes: int) -> None:
    offset, found = known[0].offset if known else None, list[int]()
    while offset is not None:
        [answer] = await path.fetch((0, offset), max_bytes=max_bytes)
        assert answer.error is ErrorCode.NONE
        records = records_of(answer)
        if not records:
            assert answer.high_watermark == offset
            break
        found += [number for number, _ in records if number >= offset]
        offset = records[-1][0] + 1
    assert found == [one.offset for one in known]
