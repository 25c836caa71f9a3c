"""Positions in a log as a user writes them."""

from __future__ import annotations

import pytest

from diskless_core.cli.client.groups import shifted
from diskless_core.cli.client.positions import (
    Beginning,
    End,
    Last,
    Offset,
    PositionError,
    Time,
    at_offsets,
    parse_position,
)

NOW_MS = 1_000_000_000


@pytest.mark.parametrize(
    ("written", "position"),
    [
        ("beginning", Beginning()),
        ("Earliest", Beginning()),
        ("end", End()),
        ("latest", End()),
        ("42", Offset(42)),
        ("-10", Last(10)),
        ("-15m", Time(NOW_MS - 900_000)),
        ("-1d2h3m4s", Time(NOW_MS - 93_784_000)),
        ("-PT1H", Time(NOW_MS - 3_600_000)),
        ("@1700000000000", Time(1_700_000_000_000)),
        ("1970-01-02", Time(86_400_000)),
        ("1970-01-01T00:00:01.5Z", Time(1_500)),
        ("1970-01-01T01:00:00+01:00", Time(0)),
    ],
)
def test_a_position_means_what_the_help_says(written, position):
    assert parse_position(written, NOW_MS) == position


@pytest.mark.parametrize("written", ["", "-", "--5", "-m", "-P", "yesterday", "+5", "@", "@x", "5m", "-5x", "1.5"])
def test_anything_else_is_refused_with_what_is_possible(written):
    with pytest.raises(PositionError, match="give beginning, end"):
        parse_position(written, NOW_MS)


def test_a_position_is_never_outside_what_a_partition_has():
    assert [at_offsets(position, 10, 20) for position in (Beginning(), End(), Offset(15))] == [10, 20, 15]
    assert [at_offsets(position, 10, 20) for position in (Offset(5), Offset(99))] == [10, 20]
    assert [at_offsets(Last(count), 10, 20) for count in (0, 3, 99)] == [20, 17, 10]
    assert [shifted(15, by, 10, 20) for by in (-1, 1, -99, 99)] == [14, 16, 10, 20]
