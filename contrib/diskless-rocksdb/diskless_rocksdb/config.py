"""Settings of the `rocksdb` coordinator store."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from diskless_core.plugin.config import PluginSettings

MIB = 1 << 20


class RocksdbSettings(PluginSettings):
    """Properties `coordinator_store.rocksdb.*`."""

    path: str = Field(
        default="",
        description="Folder of the databases, an absolute path. Empty: the plugin's own folder in the first of "
        "log.dirs.",
    )
    cache_bytes: int = Field(
        default=32 * MIB,
        ge=MIB,
        description="Memory for blocks, indexes and filters that were read, of all shards of the broker together, in "
        "bytes.",
    )
    write_buffer_bytes: int = Field(
        default=32 * MIB,
        ge=2 * MIB,
        le=16 << 30,
        description="Memory for rows that are not in RocksDB's tables yet, of all shards of the broker together, in "
        "bytes. A snapshot that is being read can hold on to as much once more.",
    )
    max_open_files: int = Field(
        default=128,
        ge=32,
        description="Files of tables that one shard's database keeps open.",
    )
    background_jobs: int = Field(
        default=2,
        ge=2,
        description="Threads that write and merge tables, of all shards of the broker together.",
    )
    write_timeout_ms: int = Field(
        default=30_000,
        ge=0,
        description="How long a write waits, in milliseconds, while RocksDB takes none because it cannot write and "
        "merge its tables as fast. Then the write fails, and the broker tries it again.",
    )

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if value and not Path(value).is_absolute():
            raise ValueError("must be an absolute path, or empty")
        return value
