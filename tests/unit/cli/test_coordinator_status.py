"""`diskless coordinator status` as an operator reads it."""

from __future__ import annotations

from typing import Any

from diskless_core.cli.coordinator import _status_lines

DISKLESS: dict[str, Any] = {
    "shard": "__diskless_metadata-0",
    "leader": 1,
    "leading": True,
    "term": 4,
    "log_start_offset": 100,
    "high_watermark": 209,
    "applied_offset": 208,
    "stored_offset": 150,
    "pending_commands": 3,
    "snapshot_offset": 120,
    "snapshot_taken_at": 1_700_000_000_000,
    "bytes_since_snapshot": 9000,
    "failure": None,
    "rows": {"topics": 1, "partitions": 2},
    "data_bytes": 12345,
    "objects": {"live": 2, "waiting": 0, "to_hand_over": 0, "to_delete": 1, "gone": 0},
}
GROUPS = DISKLESS | {
    "shard": "__consumer_offsets-0",
    "leading": False,
    "snapshot_offset": None,
    "snapshot_taken_at": None,
    "data_bytes": None,
    "objects": None,
    "failure": "it stands still",
}


def test_each_shard_has_a_line_in_the_table_and_its_figures_below() -> None:
    header, first, second, *below = _status_lines([DISKLESS, GROUPS])

    assert header.split("  ")[0] == "shard"
    assert "stored" in header
    assert first.split() == ["__diskless_metadata-0", "1", "yes", "4", "100", "209", "208", "150", "3"]
    assert second.split()[:3] == ["__consumer_offsets-0", "1", "no"]
    assert below == [
        "__diskless_metadata-0 rows: topics 1, partitions 2",
        "__diskless_metadata-0 snapshot: up to 120, 2023-11-14T22:13:20.000Z; 9000 bytes of the log since",
        "__diskless_metadata-0 data: 12345 bytes",
        "__diskless_metadata-0 objects: live 2, waiting 0, to_hand_over 0, to_delete 1, gone 0",
        "__consumer_offsets-0 rows: topics 1, partitions 2",
        "__consumer_offsets-0 snapshot: -; 9000 bytes of the log since",
        "__consumer_offsets-0 FAILED: it stands still",
    ]
