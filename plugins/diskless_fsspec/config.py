"""Settings of the `fsspec` backends."""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from diskless_core.plugin.config import PluginSettings, SecretJsonObject, parse_json_object


class FsspecConnection(PluginSettings):
    """How to reach a place through fsspec; what lies there is a subclass's business."""

    url: str
    endpoint_url: str = Field(
        default="", description="Address of an S3-compatible service, or of a GCS emulator. Empty: the provider's own."
    )
    region: str = Field(default="", description="Region of the S3 bucket. Empty: what the environment says.")
    key: SecretStr | None = Field(
        default=None, description="S3 access key id. Unset: the usual AWS sources, such as the instance's role."
    )
    secret: SecretStr | None = Field(default=None, description="S3 secret access key; goes with key.")
    options: SecretJsonObject = Field(
        default=SecretStr("{}"),
        description="Further arguments of the fsspec file system, as a JSON object. They take precedence.",
    )
    request_timeout_ms: int = Field(
        default=30_000, gt=0, description="After how many milliseconds a request to a network store is given up."
    )
    max_connections: int = Field(default=64, gt=0, description="Connections to S3 that may be open at once.")
    threads: int = Field(
        default=4,
        gt=0,
        description="Threads for reads, and as many for writes, where file operations block (file:// and others). "
        "However many there are, a disk is asked for two large pieces at once, besides new WAL objects.",
    )

    @field_validator("url", "endpoint_url")
    @classmethod
    def _without_credentials(cls, value: str) -> str:
        if value and "://" not in value:
            raise ValueError("must be a URL such as s3://bucket/prefix or file:///folder")
        parts = urlsplit(value)
        if "@" in parts.netloc:
            raise ValueError("must not hold credentials: set key and secret, or put them in options")
        if parts.scheme == "file" and ("?" in value or "#" in value):
            raise ValueError("must write ? as %3F and # as %23 in the name of a folder: in a URL they end the path")
        return value

    @model_validator(mode="after")
    def _key_with_secret(self) -> Self:
        if (self.key is None) != (self.secret is None):
            raise ValueError("key and secret must be set together")
        return self

    def parsed_options(self) -> dict[str, Any]:
        """The JSON object of `options`. It may hold secrets."""
        return parse_json_object(self.options)


class FsspecSettings(FsspecConnection):
    """Properties `wal_object_store.fsspec.*`."""

    url: str = Field(
        default="",
        description="Where WAL objects live, for example s3://bucket/prefix, gs://bucket/prefix, file:///srv/wal or "
        "memory://name. Empty: the folder wal-objects in the first of log.dirs.",
    )


class FsspecRemoteStorageSettings(FsspecConnection):
    """Properties `remote_storage.fsspec.*`."""

    url: str = Field(
        default="",
        description="Where segments are kept, for example s3://bucket/prefix, gs://bucket/prefix, file:///srv/segments "
        "or memory://name. Empty: the folder remote-storage in the first of log.dirs.",
    )
