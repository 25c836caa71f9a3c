"""Settings of the store. Fields are properties: `cache_bytes` is `<noun>.<name>.cache.bytes`."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstCoordinatorStoreSettings(PluginSettings):
    """`coordinator_store.first_coordinator_store.*`"""

    cache_bytes: int = Field(default=8 << 20, ge=1 << 20, description="Memory for pages of each shard, in bytes.")
