"""A stream's offsets: how far a micro-batch goes, when there is none yet, and topics that are not what they were."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from diskless_core.clock import SystemClock
from diskless_core.protocol.names import uuid_text
from diskless_spark.source import tables
from diskless_spark.source.layouts import AbsentError
from diskless_spark.source.options import parse
from diskless_spark.source.reading import LostRecordsError
from diskless_spark.source.source import StreamQuery
from diskless_spark.source.triggers import TriggerGate
from tests.unit.spark.source.worlds import TOPIC_ID, World, with_other_topic

OLD = uuid_text(TOPIC_ID)
MINUTE_MS = 60_000


class Clock(SystemClock):
    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


class Stream:
    """A query on a world with one partition, and what Spark would ask of it."""

    def __init__(self, **options: str) -> None:
        self.world = World()
        self.clock = Clock()
        self.start(**({} if options.keys() & {"subscribe", "assign"} else {"subscribePattern": "t"}) | options)
        self.add(3)
        self.position = self.query.initialOffset()

    def start(self, **options: str) -> None:
        """Begin, or go on as after a restart, with other options if there are any."""
        if options:
            self.options = parse({"startingOffsets": "earliest"} | options, is_stream=True)
        self.query = StreamQuery(self.options, tables.full_schema(include_headers=False))
        self.query.layouts = self.world
        self.query._clock = self.clock
        self.limit = self.query.getDefaultReadLimit()

    def add(self, count: int, partition: int = 0) -> None:
        layout = self.world.layouts.get(partition)
        end = 0 if layout is None else layout.end_offset
        self.world.put(f"wal/{partition}-{end}", (partition, end, [1] * count))

    def add_topic(self, name: str, partition: int, count: int) -> None:
        """Another topic, with one partition whose index no other topic has."""
        self.add(count, partition)
        layout = self.world.layouts[partition]
        other = layout.partition._replace(topic=name, topic_id=uuid.UUID(int=100 + partition))
        self.world.layouts[partition] = replace(layout, partition=other)

    def create_topic_anew(self) -> None:
        self.world.layouts = {index: with_other_topic(World.empty(index)) for index in self.world.layouts}

    def go_on(self, limit: Any = None) -> list[tuple[int, int, int]]:
        """A micro-batch: the partition and the offsets, from the first to before the last, of what it reads."""
        end = self.query.latestOffset(self.position, limit or self.limit)
        tasks = self.query.partitions(self.position, end)
        self.position = end
        return [(piece.place.partition, piece.start, piece.end) for task in tasks for piece in task.pieces]

    def known(self) -> list[int]:
        """The first offsets of the ranges that it knows."""
        return [found.base_offset for layout in self.query._known for found in layout.ranges]


def noted(topic_id: str, *offsets: int) -> dict[str, Any]:
    return {"t": {"id": topic_id, "offsets": {str(partition): offset for partition, offset in enumerate(offsets)}}}


def test_a_checkpoint_has_the_offsets_and_the_id_of_the_topic():
    stream = Stream()
    assert stream.position == noted(OLD, 0)
    assert stream.go_on() == [(0, 0, 3)]
    assert stream.position == noted(OLD, 3) == stream.query.reportLatestOffset()
    stream.add(2, partition=1)
    assert stream.go_on() == [(1, 0, 2)]
    assert stream.position == noted(OLD, 3, 2)
    assert stream.go_on() == []
    assert stream.position == noted(OLD, 3, 2)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "9"}, ReadMaxRows(9)),
        ({"minOffsetsPerTrigger": "4"}, ReadMinRows(4)),
        ({"maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "4"}, ReadMaxRows(9)),
    ],
)
def test_the_limit_that_spark_is_told(options, limit):
    assert Stream(**options).limit == limit


def test_a_micro_batch_waits_for_enough_records_or_long_enough():
    stream = Stream(minOffsetsPerTrigger="4", maxOffsetsPerTrigger="5", maxTriggerDelay="1m")
    assert stream.go_on() == [(0, 0, 3)], "the first one does not wait"
    stream.add(3)
    assert stream.go_on() == []
    assert stream.position == noted(OLD, 3)
    stream.add(1)
    assert stream.go_on() == [(0, 3, 6), (0, 6, 7)]
    stream.add(1)
    stream.clock.now_s += 59
    assert stream.go_on() == []
    stream.clock.now_s += 1
    assert stream.go_on() == [(0, 7, 8)]
    stream.add(9)
    assert sum(end - start for _, start, end in stream.go_on()) == 5
    stream.add(1)
    assert stream.go_on(ReadAllAvailable()) == [(0, 13, 17), (0, 17, 18)], "no limit holds with Trigger.Once"


def test_a_stream_that_ends_with_what_there_is_does_not_wait():
    stream = Stream(minOffsetsPerTrigger="4", maxOffsetsPerTrigger="4")
    stream.add(3)
    stream.query.prepareForTriggerAvailableNow()
    stream.add(9)
    assert [sum(end - start for _, start, end in stream.go_on()) for _ in range(3)] == [4, 2, 0]


def test_a_gate_that_nobody_waits_at_keeps_no_time():
    gate = TriggerGate(min_offsets=4, max_delay_ms=MINUTE_MS)
    assert gate.opens(1, 0)
    assert not gate.opens(0, MINUTE_MS)
    assert gate.opens(1, MINUTE_MS + 1)
    assert not gate.opens(3, MINUTE_MS + 2)
    assert gate.opens(4, MINUTE_MS + 2)


def test_a_topic_that_was_created_anew_ends_a_stream():
    stream = Stream()
    stream.go_on()
    stream.create_topic_anew()
    stream.add(5)
    with pytest.raises(LostRecordsError, match=r"t: it was deleted and created anew.*With failOnDataLoss=false"):
        stream.go_on()


@pytest.mark.parametrize("limits", [{}, {"minOffsetsPerTrigger": "7"}], ids=str)
def test_or_is_read_from_its_beginning_if_that_is_allowed(caplog, limits):
    stream = Stream(failOnDataLoss="false", **limits)
    stream.add(1, partition=1)
    stream.go_on()
    stream.create_topic_anew()
    del stream.world.layouts[1]
    new_id = uuid_text(stream.world.layouts[0].partition.topic_id)
    with caplog.at_level(logging.WARNING):
        assert stream.go_on() == []
    assert "t: it was deleted and created anew" in caplog.text
    assert stream.position == noted(new_id, 0)
    caplog.clear()
    stream.add(7)
    assert stream.go_on() == [(0, 0, 7)]
    assert not caplog.text


def test_what_a_checkpoint_has_planned_of_a_topic_that_is_gone_is_not_read_from_another(caplog):
    stream = Stream(failOnDataLoss="false")
    planned = stream.position, stream.query.latestOffset(stream.position, stream.limit)
    stream.create_topic_anew()
    stream.add(5)
    stream.start()
    with caplog.at_level(logging.WARNING):
        assert stream.query.partitions(*planned) == []
    assert "t-0: it does not exist any more" in caplog.text
    stream.position = planned[1]
    assert stream.go_on() == [(0, 0, 5)]


def test_a_topic_that_is_created_anew_while_a_stream_ends_with_what_there_was():
    stream = Stream(failOnDataLoss="false", maxOffsetsPerTrigger="2")
    stream.query.prepareForTriggerAvailableNow()
    assert stream.go_on() == [(0, 0, 2)]
    stream.create_topic_anew()
    stream.query._look()
    assert stream.go_on() == []
    assert stream.position == noted(OLD, 3)


def test_a_stream_asks_for_what_lies_behind_it():
    stream = Stream()
    assert stream.go_on() == [(0, 0, 3)]
    before = stream.position
    stream.add(2)
    assert stream.go_on() == [(0, 3, 5)]
    assert stream.known() == [3]
    stream.add(1)
    behind = stream.query.latestOffset(stream.position, stream.limit)
    asked = stream.world.asked
    assert [piece.start for task in stream.query.partitions(stream.position, behind) for piece in task.pieces] == [5]
    assert stream.world.asked == asked, "it is known already"
    assert stream.known() == [5]
    assert [piece.start for task in stream.query.partitions(before, behind) for piece in task.pieces] == [3, 5]
    stream.start()
    assert [piece.start for task in stream.query.partitions(before, behind) for piece in task.pieces] == [3, 5]
    assert stream.known() == [3, 5]


BOTH = pytest.mark.parametrize(
    "chosen",
    [{"subscribePattern": "t|u"}, {"subscribe": "t,u"}, {"assign": '{"t": [0], "u": [7]}'}],
    ids=lambda chosen: next(iter(chosen)),
)
OTHER = uuid_text(uuid.UUID(int=107))


def with_two_topics(**options: str) -> Stream:
    """A stream that has read three of eight records of `u`, and one of three of `t`."""
    stream = Stream()
    stream.add_topic("u", 7, 8)
    stream.start(**options)
    stream.position = noted(OLD, 1) | {"u": {"id": OTHER, "offsets": {"7": 3}}}
    return stream


@BOTH
@pytest.mark.parametrize("is_ending", [False, True], ids=["running", "availableNow"])
@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "2"}], ids=["", "backlog"])
def test_a_topic_that_was_deleted_ends_a_stream(chosen, is_ending, limits):
    stream = with_two_topics(**chosen, **limits)
    if not is_ending:
        assert stream.go_on()
    del stream.world.layouts[7]
    if is_ending:
        stream.query.prepareForTriggerAvailableNow()
    with pytest.raises(LostRecordsError, match=r"u: it was deleted; what was not read.*With failOnDataLoss=false"):
        stream.go_on()


def test_so_does_one_of_which_all_was_read_that_was_known():
    stream = Stream()
    assert stream.go_on() == [(0, 0, 3)]
    stream.world.layouts = {}
    with pytest.raises(LostRecordsError, match="t: it was deleted"):
        stream.go_on()


@BOTH
def test_or_a_stream_goes_on_without_it_if_that_is_allowed(chosen, caplog):
    stream = with_two_topics(**chosen, failOnDataLoss="false")
    deleted = stream.world.layouts.pop(7)
    with caplog.at_level(logging.WARNING):
        assert stream.go_on() == [(0, 1, 3)]
        stream.add(1)
        assert stream.go_on() == [(0, 3, 4)]
        stream.start()
        assert stream.go_on() == []
    assert stream.position == noted(OLD, 4)
    assert caplog.text.count("u: it was deleted") == 1
    stream.world.layouts[7] = with_other_topic(deleted)
    assert stream.go_on() == [(7, 0, 8)]


def test_a_partition_that_vanishes_from_its_topic_is_lost(caplog):
    stream = Stream()
    stream.add(2, partition=1)
    stream.go_on()
    del stream.world.layouts[1]
    with pytest.raises(LostRecordsError, match=r"^t-1: it does not exist any more; what was not read of it is gone"):
        stream.go_on()
    stream.start(subscribePattern="t", failOnDataLoss="false")
    assert stream.go_on() == []
    assert stream.position == noted(OLD, 3)
    assert "t-1: it does not exist" in caplog.text


@pytest.mark.parametrize("remaining", [{"subscribe": "t"}, {"subscribePattern": "t.*"}, {"assign": '{"t": [0]}'}])
def test_a_topic_that_is_not_wanted_any_more_is_no_loss_and_keeps_its_place(remaining):
    stream = with_two_topics(subscribe="t,u")
    stream.start(**remaining)
    before = stream.position
    assert stream.go_on() == [(0, 1, 3)]
    assert stream.position["u"] == before["u"]
    del stream.world.layouts[7]
    stream.add(1)
    assert stream.go_on() == [(0, 3, 4)]


def test_what_was_planned_is_read_although_it_is_not_wanted_any_more():
    stream = with_two_topics(subscribe="t,u")
    planned = stream.query.latestOffset(stream.position, stream.limit)
    stream.start(subscribe="t")
    tasks = stream.query.partitions(stream.position, planned)
    assert [(piece.place.topic, piece.start) for task in tasks for piece in task.pieces] == [("t", 1), ("u", 3)]
    del stream.world.layouts[7]
    stream.start()
    with pytest.raises(LostRecordsError, match="u-7: it does not exist any more"):
        stream.query.partitions(stream.position, planned)


def test_a_topic_that_never_was_is_an_error_or_left_out_with_one_warning(caplog):
    stream = Stream()
    stream.go_on()
    for fail in ("true", "false"):
        stream.start(subscribe="t,other", failOnDataLoss=fail)
        with pytest.raises(AbsentError, match="there is no other"):
            stream.query.initialOffset()
        if fail == "true":
            with pytest.raises(AbsentError, match=r"there is no other\. With failOnDataLoss=false"):
                stream.go_on()
    for _ in range(2):
        stream.add(1)
        assert len(stream.go_on()) == 1
    assert caplog.text.count("there is no other, and the query goes on without") == 1
