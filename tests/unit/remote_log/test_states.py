"""What may become of a segment and of a partition's deletion."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from diskless_core.remote_log.metadata import RemoteLogSegmentState, RemotePartitionDeleteState
from diskless_core.remote_log.states import (
    PARTITION_TRANSITIONS,
    SEGMENT_TRANSITIONS,
    RemoteLogStateError,
    apply,
    apply_deletion,
    is_over,
)
from diskless_core.testing.remote_log_metadata_tools import TIME_MS, deletion, segment, update

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
REMOVING = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
REMOVED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

ALLOWED = {(STARTED, FINISHED), (STARTED, DELETING), (FINISHED, DELETING), (DELETING, DELETED)}
ALLOWED_OF_PARTITIONS = {(None, MARKED), (MARKED, REMOVING), (REMOVING, REMOVED)}


def test_the_tables_say_what_may_follow_what():
    assert {(old, new) for old, news in SEGMENT_TRANSITIONS.items() for new in news} == ALLOWED | {(None, STARTED)}
    assert {(old, new) for old, news in PARTITION_TRANSITIONS.items() for new in news} == ALLOWED_OF_PARTITIONS


@pytest.mark.parametrize(("old", "new"), list(product(RemoteLogSegmentState, RemoteLogSegmentState)))
def test_a_segment_comes_into_the_states_that_kip_405_allows_and_into_no_other(old, new):
    current = replace(segment(1, 0, 9), state=old)
    event = update(current, new, after_ms=5, broker_id=7)
    if new is STARTED:
        with pytest.raises(RemoteLogStateError, match="a copy begins once"):
            apply(current, event)
    elif old is new:
        assert apply(current, event) is current
    elif (old, new) in ALLOWED:
        assert apply(current, event) == replace(current, state=new, event_timestamp_ms=TIME_MS + 5, broker_id=7)
    else:
        with pytest.raises(RemoteLogStateError, match=rf"is {old.name} and cannot become {new.name}"):
            apply(current, event)


@pytest.mark.parametrize("state", [FINISHED, DELETING])
def test_an_unknown_segment_cannot_be_updated(state):
    with pytest.raises(RemoteLogStateError, match=r"orders-3 .* is not known and cannot become"):
        apply(None, update(segment(1, 0, 9), state))


def test_the_end_of_a_deletion_may_come_again_when_the_segment_is_forgotten():
    assert apply(None, update(segment(1, 0, 9), DELETED)) is None


def test_a_copy_begins_and_the_same_again_changes_nothing():
    begun = segment(1, 0, 9, custom_metadata=b"x")
    assert apply(None, begun) is begun
    assert apply(begun, segment(1, 0, 9, custom_metadata=b"x")) is begun


@pytest.mark.parametrize("state", [FINISHED, DELETING, DELETED])
def test_a_copy_can_only_be_added_as_begun(state):
    with pytest.raises(RemoteLogStateError, match=f"to be added as {state.name}"):
        apply(None, replace(segment(1, 0, 9), state=state))
    known = replace(segment(1, 0, 9), state=state)
    with pytest.raises(RemoteLogStateError, match=f"to be added as {state.name}"):
        apply(known, known)


@pytest.mark.parametrize("state", [FINISHED, DELETING, DELETED])
def test_a_copy_does_not_begin_again_once_it_has_gone_on(state):
    with pytest.raises(RemoteLogStateError, match=f"is there already, as {state.name}"):
        apply(replace(segment(1, 0, 9), state=state), segment(1, 0, 9))


@pytest.mark.parametrize(
    "change",
    [{"start_offset": 1}, {"end_offset": 8}, {"segment_size_bytes": 1}, {"broker_id": 9}, {"txn_index_empty": False}],
)
def test_an_id_stands_for_one_copy(change):
    with pytest.raises(RemoteLogStateError, match="for other records"):
        apply(segment(1, 0, 9), replace(segment(1, 0, 9), **change))


@pytest.mark.parametrize(
    "impossible",
    [segment(1, 5, 4), segment(1, -1, 4), segment(1, 0, 9, epochs={})],
    ids=["ends before it starts", "below zero", "without epochs"],
)
def test_impossible_segments_are_refused(impossible):
    with pytest.raises(RemoteLogStateError):
        apply(None, impossible)


def test_custom_metadata_stays_unless_the_update_has_some():
    begun = segment(1, 0, 9, custom_metadata=b"place")
    assert apply(begun, update(begun, FINISHED)).custom_metadata == b"place"
    assert apply(begun, update(begun, FINISHED, custom_metadata=b"other")).custom_metadata == b"other"
    assert apply(begun, update(begun, FINISHED, custom_metadata=b"")).custom_metadata == b""


@pytest.mark.parametrize(("old", "new"), list(product([None, *RemotePartitionDeleteState], RemotePartitionDeleteState)))
def test_a_partitions_deletion_goes_the_one_way(old, new):
    current = None if old is None else deletion(old)
    event = deletion(new, after_ms=9)
    if old is new or (old is None and new is REMOVED):
        assert apply_deletion(current, event) is current
    elif (old, new) in ALLOWED_OF_PARTITIONS:
        assert apply_deletion(current, event) == event
    else:
        with pytest.raises(RemoteLogStateError, match=rf"deletion of orders-3 .* cannot become {new.name}"):
            apply_deletion(current, event)


def test_only_the_last_state_of_each_kind_is_its_end():
    assert [is_over(replace(segment(1, 0, 9), state=state)) for state in RemoteLogSegmentState] == [
        False,
        False,
        False,
        True,
    ]
    assert [is_over(deletion(state)) for state in RemotePartitionDeleteState] == [False, False, True]
