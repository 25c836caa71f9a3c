"""Settings of the bucket log: `coordinator_log.bucket.<setting>`."""

from __future__ import annotations

from pydantic import Field, field_validator

from diskless_core.plugin.config import PluginSettings

_BILLED_LINGER_MS = 250
_BILLED_POLL_MS = 15_000
_FREE_POLL_MS = 100
_DEFAULT = -1


class BucketLogSettings(PluginSettings):
    """How often the bucket log asks the object store, which is what it costs, and where its objects are."""

    linger_ms: int = Field(
        default=_DEFAULT,
        ge=_DEFAULT,
        le=10_000,
        description="Shortest time in milliseconds between two puts of one shard; what comes meanwhile goes together "
        "into the next. -1: 250 where the object store bills requests, 0 where it does not.",
    )
    poll_max_ms: int = Field(
        default=_DEFAULT,
        ge=_DEFAULT,
        le=60_000,
        description="Longest time in milliseconds until a broker looks for what others have appended to a shard's "
        "log. What its leader sends, and its own appends, reach it at once. -1: 15000 where the object store bills "
        "requests, 100 where it does not.",
    )
    lease_ms: int = Field(
        default=9000,
        ge=6000,
        le=600_000,
        description="How long in milliseconds a broker stays nominated as leader after it wrote its lease last. It "
        "writes four times in that time, but not more often than every two seconds.",
    )
    prefix: str = Field(
        default="",
        description="What the keys of the log's objects begin with, in the place of wal_object_store. Empty: the "
        "prefix of WAL objects (diskless.wal.object.prefix) and '-log'.",
    )

    @field_validator("prefix")
    @classmethod
    def _is_key_prefix(cls, value: str) -> str:
        if value and (not value.isascii() or not all(part not in ("", ".", "..") for part in value.split("/"))):
            raise ValueError("must be a relative ASCII path without '..', such as cluster-a/log")
        return value

    def linger_s(self, *, requests_are_billed: bool) -> float:
        """The linger time that is meant, in seconds."""
        billed = _BILLED_LINGER_MS if requests_are_billed else 0
        return (billed if self.linger_ms == _DEFAULT else self.linger_ms) / 1000

    def longest_poll_s(self, *, requests_are_billed: bool) -> float:
        """The longest poll interval that is meant, in seconds."""
        usual = _BILLED_POLL_MS if requests_are_billed else _FREE_POLL_MS
        return (usual if self.poll_max_ms == _DEFAULT else self.poll_max_ms) / 1000
