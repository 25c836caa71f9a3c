"""Where records lie, as a node tells it while they move, go and are added to."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from diskless_core.coordinator.errors import CoordinatorLoadingError
from diskless_core.diskless import run_lookup
from diskless_core.diskless import shard as shard_module
from diskless_core.layout.codec import LayoutFormatError, decode_layouts
from diskless_core.layout.partition import PartitionLayout
from diskless_core.remote_log.metadata import RemoteLogSegmentState, TopicIdPartition
from diskless_core.tiering import layouts as layouts_module
from diskless_core.tiering.layouts import Layouts, LayoutServices, PinnedPartition
from diskless_core.tiering.topics import UnknownTopicError
from tests.support.produce_path import batch_of, key_of
from tests.support.shards import TOPIC, ShardNode, batch, commit_of
from tests.support.tiered_path import TieredPath
from tests.support.virtual_time import run

TOPIC_ID = uuid.UUID(bytes=TOPIC)
BATCHES = 8


class Topics:
    """There is one, until it is deleted."""

    def __init__(self) -> None:
        self.names = {TOPIC_ID: "t"}

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return self.names.get(topic_id)

    def id_of(self, name: str) -> uuid.UUID | None:
        return next((topic_id for topic_id, known in self.names.items() if known == name), None)


def layouts_of(path: TieredPath, node: ShardNode | None = None, topics: Topics | None = None) -> Layouts:
    node = node or path.node
    return Layouts(
        LayoutServices(
            cluster=node.shard,
            shards={0: node.shard},
            topics=topics or Topics(),
            metadata=path.metadata,
        )
    )


async def told(layouts: Layouts, pinned: Sequence[PinnedPartition]) -> list[PartitionLayout]:
    return list(decode_layouts([line async for block in layouts.encoded(pinned) for line in block.splitlines()]))


async def ask(layouts: Layouts) -> list[PartitionLayout]:
    return await told(layouts, await layouts.pin([], lambda name: True, {}))


def check_whole(layout: PartitionLayout, from_offset: int = 0) -> None:
    """Each record from the log start, or an offset behind it, to the end is in exactly one place."""
    wanted = max(layout.start_offset, from_offset)
    offset = None
    for segment in layout.segments:
        assert segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        assert offset is None or segment.start_offset == offset
        assert segment.end_offset >= wanted, "it has nothing that is wanted"
        assert segment.start_offset < layout.end_offset, "it has nothing yet"
        offset = segment.end_offset + 1
    for found in layout.ranges:
        assert offset is None or found.base_offset == offset
        offset = found.last_offset + 1
        assert offset <= layout.end_offset
    first = [*(one.start_offset for one in layout.segments), *(one.base_offset for one in layout.ranges)][:1]
    assert all(start <= wanted for start in first)
    assert (offset or wanted) >= layout.end_offset


async def fill(path: TieredPath, partition: int = 0, batches: int = BATCHES) -> None:
    for _ in range(batches):
        await path.produce((partition, batch_of(b"a", b"b")))


def on_a_path(story: Callable[[TieredPath], Awaitable[None]]) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await story(path)

    run(main)


def test_segments_come_first_and_ranges_behind_them():
    async def story(path: TieredPath) -> None:
        await fill(path)
        segments = [await path.tier(through=3), await path.tier(through=9)]
        found = await ask(layouts_of(path))
        assert [layout.partition for layout in found] == [(TOPIC_ID, "t", partition) for partition in range(4)]
        for layout in found:
            check_whole(layout)
        assert (found[0].start_offset, found[0].end_offset) == (0, 2 * BATCHES)
        assert [segment.segment_id for segment in found[0].segments] == [one.segment_id for one in segments]
        assert [one.base_offset for one in found[0].ranges] == [10, 12, 14]
        assert {one.object_key for one in found[0].ranges} <= set(path.objects.objects)

    on_a_path(story)


@pytest.mark.parametrize("from_offset", range(2 * BATCHES + 2))
def test_what_lies_before_an_offset_is_left_out(from_offset):
    async def story(path: TieredPath) -> None:
        for partition in (0, 1):
            await fill(path, partition)
        await path.tier(through=3)
        await path.tier(through=9)
        layouts = layouts_of(path)
        pinned = await layouts.pin([], lambda name: True, {key_of(0): from_offset})
        first, second, *_ = await told(layouts, pinned)
        check_whole(first, from_offset)
        assert [one.end_offset for one in first.segments] == [end for end in (3, 9) if end >= from_offset]
        assert [one.last_offset for one in first.ranges] == [end for end in (11, 13, 15) if end >= from_offset]
        assert (first.start_offset, first.end_offset) == (0, 2 * BATCHES)
        check_whole(second)

    on_a_path(story)


def test_what_is_committed_after_the_pinned_moment_is_left_out():
    async def story(path: TieredPath) -> None:
        await fill(path, batches=2)
        layouts = layouts_of(path)
        pinned = await layouts.pin(["t"], lambda name: False, {})
        await fill(path)
        await path.tier(through=1)
        await path.tier(through=7)
        await path.tier(through=9)
        layout = (await told(layouts, pinned))[0]
        check_whole(layout)
        assert (layout.end_offset, len(layout.segments), layout.ranges) == (4, 2, ())

    on_a_path(story)


async def tier_some(path: TieredPath) -> None:
    await path.tier(through=9)


async def tier_all_and_more(path: TieredPath) -> None:
    await fill(path)
    await path.tier(through=7)
    await path.tier()


async def delete_some(path: TieredPath) -> None:
    await path.node.shard.delete_records(key_of(0), 7)


async def delete_all_and_more(path: TieredPath) -> None:
    await fill(path)
    await path.node.shard.delete_records(key_of(0), -1)


async def retain_less(path: TieredPath) -> None:
    """A segment of before is deleted, metadata and all."""
    (segment,) = [one for one in await path.metadata.list(TopicIdPartition(TOPIC_ID, "t", 0)) if one.start_offset == 0]
    await path.node.shard.delete_records(key_of(0), segment.end_offset + 1)
    for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
        await path.note(segment, state)


@pytest.mark.parametrize("from_offset", [0, 9])
@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("happens", [tier_some, tier_all_and_more, delete_some, delete_all_and_more, retain_less])
def test_nothing_is_missing_whatever_happens_while_the_answer_is_made(happens, step, from_offset, monkeypatch):
    """Before step 0, or at the line of that number, or while the metadata of segments is looked up."""
    for module in (run_lookup, shard_module):
        monkeypatch.setattr(module, "PAGE_RUNS", 2)
    monkeypatch.setattr(layouts_module, "BLOCK_BYTES", 1)

    async def story(path: TieredPath) -> None:
        await fill(path)
        await path.tier(through=3)
        layouts = layouts_of(path)
        pinned = (await layouts.pin([], lambda name: True, {key_of(0): from_offset}))[:1]
        lines, done = list[bytes](), False

        async def now_if(number: int) -> None:
            nonlocal done
            if number >= step and not done:
                done = True
                await happens(path)

        listed = path.metadata.list

        async def slow_list(partition):
            found = await listed(partition)
            await now_if(step)
            return found

        path.metadata.list = slow_list
        async for block in layouts.encoded(pinned):
            await now_if(len(lines))
            lines += block.splitlines()
        assert done
        (layout,) = decode_layouts(lines)
        check_whole(layout, from_offset)
        head = path.node.shard.head(key_of(0))
        assert layout.end_offset == max(2 * BATCHES, layout.start_offset)
        assert layout.start_offset <= head.log_start_offset

    on_a_path(story)


@pytest.mark.parametrize("step", [0, 2])
def test_a_topic_that_is_deleted_meanwhile_is_left_out(step, monkeypatch):
    monkeypatch.setattr(layouts_module, "BLOCK_BYTES", 1)

    async def story(path: TieredPath) -> None:
        await fill(path)
        layouts = layouts_of(path)
        pinned = await layouts.pin([], lambda name: True, {})
        lines = list[bytes]()
        async for block in layouts.encoded(pinned[:1]):
            if len(lines) == step:
                await path.node.shard.delete_topic(TOPIC_ID)
            lines += block.splitlines()
        assert list(decode_layouts(lines)) == []

    on_a_path(story)


def test_a_segment_of_which_nothing_is_known_breaks_the_answer_off():
    async def story(path: TieredPath) -> None:
        await fill(path)
        segment = await path.tier(through=3)
        for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
            await path.note(segment, state)
        with pytest.raises(LayoutFormatError, match=f"nothing is known of the segment {segment.segment_id.id} of t-0"):
            await ask(layouts_of(path))

    on_a_path(story)


@pytest.mark.parametrize("known", [None, RemoteLogSegmentState.COPY_SEGMENT_STARTED])
def test_metadata_that_comes_later_than_the_coordinators_news_is_waited_for(known):
    """Of another node's segment, this one may learn first that it was taken, then that there is such a copy."""

    async def story(path: TieredPath) -> None:
        await fill(path)
        segment = await path.tier(through=3)
        arrives_at, listed = path.clock.monotonic() + 5, path.metadata.list

        async def lagging_list(partition):
            if path.clock.monotonic() < arrives_at:
                return [] if known is None else [replace(segment, state=known)]
            return await listed(partition)

        path.metadata.list = lagging_list
        layout = (await ask(layouts_of(path)))[0]
        check_whole(layout)
        assert [one.segment_id for one in layout.segments] == [segment.segment_id]

    on_a_path(story)


def test_topics_are_chosen_by_name_and_those_that_the_cluster_has_not_are_left_out():
    async def story(path: TieredPath) -> None:
        other = uuid.UUID(int=9)
        await path.node.shard.create_partitions(other, "other", [5, 2])
        topics = Topics()
        layouts = layouts_of(path, topics=topics)
        assert {one.partition.topic for one in await layouts.pin([], lambda name: True, {})} == {"t"}
        topics.names[other] = "other"
        assert [one.partition[1:] for one in await layouts.pin(["other"], lambda name: False, {})] == [
            ("other", 2),
            ("other", 5),
        ]
        assert len(await layouts.pin([], lambda name: name.endswith("r"), {})) == 2
        assert len(await layouts.pin(["t"], lambda name: name.endswith("r"), {})) == 6
        with pytest.raises(UnknownTopicError, match="there is no topic missing"):
            await layouts.pin(["t", "missing"], lambda name: True, {})

    on_a_path(story)


def test_a_topic_is_judged_once_and_others_get_their_turn_meanwhile(monkeypatch):
    monkeypatch.setattr(layouts_module, "TOPICS_AT_ONCE", 1)

    async def story(path: TieredPath) -> None:
        for number in range(3):
            await path.node.shard.create_partitions(uuid.UUID(int=number + 1), f"other{number}", [0, 1, 2])
        judged, turns = list[str](), list[int]()

        def wants(name: str) -> bool:
            asyncio.get_running_loop().call_soon(turns.append, len(judged))
            judged.append(name)
            return False

        assert await layouts_of(path).pin([], wants, {}) == []
        assert sorted(judged) == ["other0", "other1", "other2", "t"]
        assert turns[:3] == [0, 1, 2]

    on_a_path(story)


def test_a_replica_that_lags_answers_when_it_has_everything_that_was_committed_before():
    async def story(path: TieredPath) -> None:
        follower = ShardNode(path.shared, path.clock, 2, candidate=False)
        await follower.start(lead=False)
        path.shared.pause_reads(2)
        await path.node.commit(commit_of("last", batch()))
        layouts = layouts_of(path, follower)
        with pytest.raises(CoordinatorLoadingError, match="has read the log of __diskless_metadata-0 up to offset"):
            await layouts.pin([], lambda name: True, {})
        path.shared.resume_reads(2)
        assert [one.end_offset for one in await layouts.pin([], lambda name: True, {})] == [1, 0, 0, 0]
        await follower.stop()

    on_a_path(story)
