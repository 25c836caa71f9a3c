"""Up to which offset each shard is known to be durable, in the checkpoint file that Kafka has for it.

A shard's own batches prove that all writes but the last one were synced. The checkpoint proves it of the last one, once
there was time to write it: at a start, at the end, and when a second passed without an append. Everything here blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from diskless_core.log import offset_checkpoint
from diskless_core.log.leader_epochs import CorruptCheckpointError
from diskless_core.log.offset_checkpoint import RECOVERY_POINTS
from diskless_core.plugin.folders import write_durably
from diskless_core.plugin.shard import ShardId

_log = logging.getLogger(__name__)


def read_recovery_points(data_dir: Path) -> dict[ShardId, int]:
    """Offsets (exclusive) below which a shard was synced; a shard that has none is not in it."""
    path = data_dir / RECOVERY_POINTS
    try:
        found = offset_checkpoint.decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except CorruptCheckpointError as error:
        _log.warning("%s is ignored: %s. A log that lacks its last write may go unnoticed at this start", path, error)
        return {}
    return {ShardId(topic, partition): offset for (topic, partition), offset in found.items()}


def write_recovery_points(data_dir: Path, points: Mapping[ShardId, int]) -> None:
    """Replace the checkpoint. Everything below these offsets has to be durable already.

    Raises:
        OSError: it could not be written. The one before is still there, and still true.
    """
    content = offset_checkpoint.encode({(shard.topic, shard.index): offset for shard, offset in points.items()})
    write_durably(data_dir / RECOVERY_POINTS, content)


def note_recovery_points(data_dir: Path, points: Mapping[ShardId, int]) -> None:
    """`write_recovery_points`; a failure is logged, for nothing depends on it but what a later start can prove."""
    try:
        write_recovery_points(data_dir, points)
    except OSError as error:
        _log.warning("%s could not be written: %s", data_dir / RECOVERY_POINTS, error)
