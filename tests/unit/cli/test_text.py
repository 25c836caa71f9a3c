"""Tables and times as commands write them."""

from __future__ import annotations

import sys

from diskless_core.cli import tables, text
from diskless_core.cli.text import counted, iso_time, table


def test_columns_are_aligned_and_numbers_flush_right():
    assert table(("name", "bytes"), [("a", 5), ("longer", 12_000)]) == [
        "name    bytes",
        "a           5",
        "longer  12000",
    ]


def test_a_table_without_rows_is_its_header():
    assert table(("name", "bytes"), []) == ["name  bytes"]


def test_times_are_iso_8601_in_utc_with_milliseconds():
    assert iso_time(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert iso_time(-1) == "-"


def test_one_thing_is_not_many():
    assert [counted(number, "segment") for number in (0, 1, 2)] == ["0 segments", "1 segment", "2 segments"]


def test_a_table_is_plain_lines_unless_it_is_shown_at_a_terminal(capsys, monkeypatch):
    header, rows = ("topic", "lag"), [("orders", 7), ("[bold]", None)]
    tables.echo_table(header, rows)
    plain = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    tables.echo_table(header, rows)
    shown = capsys.readouterr().out

    assert plain.splitlines() == text.table(header, rows)
    assert "───" in shown
    assert all(cell in shown for cell in ("topic", "lag", "orders", "7", "[bold]", "-"))
