"""Offsets: what is read of partitions as they are, what is lost, how a limit is shared out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_spark.source import offsets
from diskless_spark.source.decoding import Place
from diskless_spark.source.offsets import Extent, Losses, Position, Span
from diskless_spark.source.options import EARLIEST, LATEST, At, SourceOptionError

A, B = Place("t", 0), Place("t", 1)
EXTENTS = {A: Extent(10, 20), B: Extent(0, 5)}

positions = st.dictionaries(st.builds(Place, st.sampled_from("ab"), st.integers(0, 5)), st.integers(0, 1_000))


def test_the_form_of_a_checkpoint():
    position = Position(topic_ids={"s": "S", "t": "T"}, offsets={B: 4, A: 3, Place("s", 0): 1})
    noted = {"s": {"id": "S", "offsets": {"0": 1}}, "t": {"id": "T", "offsets": {"0": 3, "1": 4}}}
    assert json.dumps(position.noted()) == json.dumps(noted)
    assert Position.from_noted(noted) == position


def test_a_topic_that_was_created_anew_is_read_from_its_beginning_and_others_go_on():
    position = Position(topic_ids={"s": "S", "t": "T", "u": "U"}, offsets={A: 15, B: 3, Place("s", 0): 1})
    losses = Losses()
    extents = {A: Extent(2, 4), Place("s", 0): Extent(0, 9)}
    assert offsets.resumed(position, {"s": "S", "t": "another"}, extents, losses) == Position(
        topic_ids={"s": "S", "t": "another", "u": "U"}, offsets={A: 2, Place("s", 0): 1}
    )
    (words,) = losses.found
    assert words.startswith("t: it was deleted and created anew, its id was T and is another now")


def test_words_numbers_and_times():
    def resolve(at: At, by_time=None):
        return offsets.resolve(at, EXTENTS, by_time or {})

    assert resolve(At(option="startingOffsets", default=EARLIEST, offsets={}, timestamps_ms={})) == {A: 10, B: 0}
    assert resolve(At(option="startingOffsets", offsets={A: LATEST, B: 2}, timestamps_ms={})) == {A: 20, B: 2}
    assert resolve(At(option="startingOffsets", timestamp_ms=7, offsets={}, timestamps_ms={}), {A: 12, B: None}) == {
        A: 12,
        B: 5,
    }
    with pytest.raises(SourceOptionError, match="t-1 is not named"):
        resolve(At(option="startingOffsets", offsets={A: 1}, timestamps_ms={}))
    with pytest.raises(SourceOptionError, match="x-0 is named, but is not read"):
        resolve(At(option="startingOffsets", offsets={A: 1, B: 1, Place("x", 0): 1}, timestamps_ms={}))


@pytest.mark.parametrize(
    ("starts", "ends", "wanted", "lost"),
    [
        ({A: 12, B: 0}, {A: 20, B: 5}, {A: Span(12, 20), B: Span(0, 5)}, []),
        ({A: 4}, {A: 20}, {A: Span(10, 20)}, ["t-0: offsets from 4 on"]),
        ({A: 12}, {A: 25}, {A: Span(12, 20)}, ["t-0: offset 25 is asked for, but it ends before 20"]),
        ({A: 30}, {A: 30}, {}, ["t-0: offset 30"]),
        ({}, {A: 15, B: 5}, {A: Span(10, 15), B: Span(0, 5)}, ["t-0: offsets from 0 on"]),
        ({Place("x", 0): 1}, {Place("x", 0): 2}, {}, ["x-0: it does not exist"]),
        ({A: 4}, {A: 4}, {}, []),
    ],
)
def test_what_is_not_there_is_lost(starts, ends, wanted, lost):
    losses = Losses()
    assert offsets.spans(starts, ends, EXTENTS, losses) == wanted
    assert len(losses.found) == len(lost)
    assert all(found.startswith(words) for found, words in zip(losses.found, lost, strict=True))


@given(positions, positions, st.integers(1, 3_000))
@settings(deadline=None)
def test_a_limit_is_kept_used_up_and_shared_by_what_there_is(starts, more, limit):
    ends = {place: starts.get(place, 0) + count for place, count in more.items()}
    starts = {place: starts.get(place, 0) for place in ends}
    shared = offsets.share_out(limit, starts, ends)
    total = sum(more.values())
    assert sum(shared.values()) - sum(starts.values()) == min(limit, total)
    for place, end in shared.items():
        fair = more[place] * min(limit, total) / max(total, 1)
        assert starts[place] <= end <= ends[place]
        assert abs(end - starts[place] - fair) < 1
