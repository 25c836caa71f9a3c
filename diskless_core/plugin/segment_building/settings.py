"""Settings that every engine has which builds segments with this package."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from diskless_core.plugin.config import PluginSettings


class SegmentBuildingSettings(PluginSettings):
    """How much is read at once. An engine's own settings are a subclass."""

    buffer_max_bytes: int = Field(
        default=64 << 20, ge=1 << 20, description="Memory for batches that are on their way into segments, in bytes."
    )
    read_max_bytes: int = Field(
        default=8 << 20, ge=1, description="How much of a WAL object is read at once at most, in bytes."
    )
    parallel_reads: int = Field(
        default=4, ge=1, description="How many reads of WAL objects are under way at once for one partition."
    )

    @field_validator("read_max_bytes")
    @classmethod
    def _fits_into_the_buffer(cls, value: int, info: ValidationInfo) -> int:
        buffer_max_bytes = info.data.get("buffer_max_bytes")
        if buffer_max_bytes is not None and value > buffer_max_bytes:
            raise ValueError(f"it has to be at most buffer.max.bytes, which is {buffer_max_bytes}")
        return value
