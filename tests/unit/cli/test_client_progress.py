"""When `diskless consume` has read enough."""

from __future__ import annotations

from diskless_core.cli.client.consume import Progress


def test_without_an_end_it_never_is():
    progress = Progress(None, None)
    progress.assign([0])

    assert progress.take(0, 5)
    assert not progress.is_over


def test_it_is_after_so_many_records():
    progress = Progress(None, 2)
    progress.assign([0, 1])

    assert [progress.take(0, 0), progress.take(1, 0), progress.take(0, 1)] == [True, True, False]
    assert progress.is_over


def test_it_is_when_each_partition_has_come_to_its_stop():
    progress = Progress({0: 2, 1: 1}, None)
    progress.assign([0, 1])

    assert [progress.take(0, 0), progress.take(1, 0), progress.is_over] == [True, True, False]
    assert progress.take(0, 1)
    assert progress.is_over


def test_a_gap_before_the_stop_is_passed_by_a_later_record_or_by_the_partitions_end():
    progress = Progress({0: 9, 1: 9}, None)
    progress.assign([0, 1])

    assert not progress.take(0, 12)
    progress.reach(1, 9)
    assert progress.is_over


def test_partitions_that_are_taken_away_are_another_consumers():
    progress = Progress({0: 2, 1: 2}, None)
    assert not progress.is_over
    progress.assign([0, 1])
    progress.revoke([0, 1])
    assert not progress.is_over
    progress.assign([1])

    assert not progress.take(0, 0)
    assert progress.take(1, 1)
    assert progress.is_over


def test_a_partition_that_was_added_later_has_nothing_to_read():
    progress = Progress({0: 1}, None)
    progress.assign([0, 1])

    assert not progress.take(1, 0)
    assert progress.take(0, 0)
    assert progress.is_over
