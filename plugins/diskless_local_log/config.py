"""Settings of the local coordinator log: `coordinator_log.local.<setting>`."""

from __future__ import annotations

from pydantic import Field

from diskless_core.plugin.config import PluginSettings


class LocalLogSettings(PluginSettings):
    """How the local log writes and what it keeps in memory."""

    fsync: bool = Field(
        default=True,
        description="Whether an append is forced to the disk before it is acknowledged. Without it a power failure "
        "may lose acknowledged appends; a crash of the broker alone does not.",
    )
    segment_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=4096,
        le=1024 * 1024 * 1024,
        description="Size in bytes above which a shard's log goes on in a new segment file. Only whole segments are "
        "pruned.",
    )
    tail_bytes: int = Field(
        default=8 * 1024 * 1024,
        ge=0,
        description="Bytes of the newest batches that each shard keeps in memory, at the least, for readers at the "
        "end of the log; at most twice as much is held.",
    )
