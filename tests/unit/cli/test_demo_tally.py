"""The demo's judge finds what it is there to find."""

from __future__ import annotations

from diskless_core.cli.demo_traffic import Tally


def tally(*numbers):
    made = Tally()
    for number in numbers:
        made.add(b"key", number, 0)
    return made


def test_records_in_order_and_once_have_no_problems():
    assert tally(0, 1, 2).problems(3) == []


def test_keys_are_counted_apart():
    made = tally(0, 1)
    made.add(b"other", 0, 1)

    assert made.problems(3) == []


def test_a_lost_record_is_found():
    assert tally(0, 1).problems(3) == ["2 records were read, 3 were acknowledged"]


def test_a_record_that_comes_twice_is_found():
    assert tally(0, 1, 1).problems(3) == ["1 records came twice"]


def test_a_record_that_overtakes_another_is_found():
    assert any("before an earlier one of their key" in problem for problem in tally(0, 2, 1).problems(3))
