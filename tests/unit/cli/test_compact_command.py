"""What `diskless compact` writes of a plan and of a report."""

from __future__ import annotations

from typing import Any

import pytest

from diskless_core.cli import compact

SEGMENT: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "start_offset": 0,
    "end_offset": 99,
    "size_bytes": 2048,
    "ranges": 3,
}
REPORT: dict[str, Any] = {
    "state": "finished",
    "engine": "inline",
    "begun_at_ms": 1_000,
    "ended_at_ms": 3_500,
    "bytes_copied": 2048,
    "segments": 1,
    "topics": {"orders": {"partitions": 1, "segments": 1, "size_bytes": 2048, "segments_lost": 0}},
    "failures": [],
    "jobs": [{"node_id": 2, "state": "lost"}],
}


def test_a_plan_is_plain_lines_for_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    compact._show_plan([SEGMENT])
    header, row, total = capsys.readouterr().out.splitlines()

    assert header.split() == ["topic", "partition", "start", "offset", "end", "offset", "bytes", "ranges"]
    assert row.split() == ["orders", "0", "0", "99", "2048", "3"]
    assert total == "1 segment of 2048 bytes"


def test_a_report_is_plain_lines_for_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    compact._show_report(REPORT)
    header, row, total, moved = capsys.readouterr().out.splitlines()

    assert header.split() == ["topic", "partitions", "segments", "bytes", "lost"]
    assert row.split() == ["orders", "1", "1", "2048", "0"]
    assert total == "1 segment of 2048 bytes in 2.5 s, engine inline"
    assert moved == "broker 2 did not finish its job: others went on with it"
