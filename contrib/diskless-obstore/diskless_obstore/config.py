"""Settings of `wal_object_store=obstore`. Those that fsspec has too are called the same."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from diskless_core.plugin.config import PluginSettings


class ObstoreSettings(PluginSettings):
    """Properties `wal_object_store.obstore.*`."""

    url: str = Field(description="Where WAL objects live: s3://bucket or s3://bucket/prefix. The bucket has to exist.")
    endpoint_url: str = Field(default="", description="Address of an S3-compatible service. Empty: Amazon's own.")
    region: str = Field(default="", description="Region of the bucket. Empty: what the environment says.")
    key: SecretStr | None = Field(
        default=None,
        description="S3 access key id. Unset: the environment, or the role of the pod, task or instance. Profiles in "
        "~/.aws are not read.",
    )
    secret: SecretStr | None = Field(default=None, description="S3 secret access key; goes with key.")
    request_timeout_ms: int = Field(
        default=30_000, gt=0, description="After how many milliseconds a request is given up."
    )
    max_requests: int = Field(default=64, gt=0, description="Requests that may be under way at once.")

    @field_validator("url")
    @classmethod
    def _bucket(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme != "s3" or not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("must be s3://bucket or s3://bucket/prefix, without credentials")
        prefix = parts.path.strip("/")
        if not prefix.isascii() or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
            raise ValueError("must have an ASCII path such as wal or team/wal behind the bucket")
        return value

    @field_validator("endpoint_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must be a URL such as https://s3.example.com")
        if "@" in parts.netloc or parts.query:
            raise ValueError("must not hold credentials: set key and secret")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _key_with_secret(self) -> Self:
        if (self.key is None) != (self.secret is None):
            raise ValueError("key and secret must be set together")
        return self

    @property
    def bucket(self) -> str:
        """The bucket of the URL."""
        return urlsplit(self.url).netloc

    @property
    def prefix(self) -> str:
        """The path of the URL, without slashes around it."""
        return urlsplit(self.url).path.strip("/")
