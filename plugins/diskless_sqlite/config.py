"""Settings of the `sqlite` coordinator store."""

from __future__ import annotations

from pydantic import Field

from diskless_core.plugin.config import PluginSettings


class SqliteSettings(PluginSettings):
    """Properties `coordinator_store.sqlite.*`."""

    cache_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=64 * 1024,
        description="Memory that SQLite may use to cache pages of one shard's database, in bytes.",
    )
    checkpoint_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=64 * 1024,
        description="Size that SQLite's own write-ahead log may reach before it is copied into the database, in bytes. "
        "Each copy costs two fsyncs.",
    )
