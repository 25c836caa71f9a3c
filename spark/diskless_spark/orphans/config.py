"""Settings of the detector `spark`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import fsspec
from pydantic import Field, SecretStr, field_validator

from diskless_core.plugin.config import SecretJsonObject, parse_json_object
from diskless_spark.config import SparkSettings

_DAY_MS = 86_400_000


class SparkOrphanSettings(SparkSettings):
    """`orphan_detection.spark.*`"""

    inventory_url: str = Field(
        default="",
        description="An S3 Inventory of the bucket, to be read instead of listing it: the folder of its configuration, "
        "of which the newest inventory is taken, or one manifest.json. CSV or Parquet. Empty: the bucket is listed.",
    )
    inventory_key_prefix: str = Field(
        default="",
        description="What the inventory's keys have before those of WAL objects: the path in the URL of the WAL object "
        "store, such as kafka/ of s3://bucket/kafka.",
    )
    inventory_max_age_ms: int = Field(
        default=8 * _DAY_MS,
        gt=0,
        description="An inventory older than so many milliseconds is refused. What is younger waits for the next one.",
    )
    report_url: str = Field(
        default="",
        description="Folder for a report of each search, written before anything is deleted, such as "
        "s3://bucket/reports or file:///srv/reports. Empty: the log alone has it.",
    )
    options: SecretJsonObject = Field(
        default=SecretStr("{}"),
        description="Arguments of the fsspec file system for the inventory and the reports, as a JSON object.",
    )
    parallel_requests: int = Field(
        default=32, gt=0, description="Requests to the object store that a Spark task has under way at most."
    )

    @field_validator("inventory_url", "report_url")
    @classmethod
    def _without_credentials(cls, value: str) -> str:
        if value and "://" not in value:
            raise ValueError("must be a URL such as s3://bucket/prefix or file:///folder")
        if value and urlsplit(value).scheme not in fsspec.available_protocols():
            raise ValueError(f"fsspec has no file system for {urlsplit(value).scheme}://")
        if "@" in urlsplit(value).netloc:
            raise ValueError("must not hold credentials: put them in options")
        return value.rstrip("/")

    def parsed_options(self) -> dict[str, Any]:
        """The JSON object of `options`. It may hold secrets."""
        return parse_json_object(self.options)
