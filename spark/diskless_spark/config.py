"""Settings of what Spark does for a broker."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, SecretStr, field_validator

from diskless_core.plugin.config import PluginSettings, SecretJsonObject, parse_json_object
from diskless_core.plugin.segment_building.settings import SegmentBuildingSettings
from diskless_spark.session import SessionOptions

GIB = 1 << 30


class SparkSettings(PluginSettings):
    """How to start a Spark where this process has none."""

    master: str = Field(
        default="local[*,4]",
        description="Spark's master URL: spark://host:7077, yarn, k8s://…, or this machine: local[*,4] is all cores, "
        "and four attempts for each task. A session that is there, as under spark-submit, is used as it is.",
    )
    app_name: str = Field(default="diskless", description="Name of the application in Spark's own UI.")
    conf: SecretJsonObject = Field(
        default=SecretStr("{}"),
        description='Further Spark properties, as a JSON object: {"spark.executor.memory": "4g"}.',
    )

    @field_validator("conf")
    @classmethod
    def _of_spark(cls, value: SecretStr) -> SecretStr:
        for name, one in parse_json_object(value).items():
            if not name.startswith("spark."):
                raise ValueError(f"{name!r} is no property of Spark: their names begin with spark.")
            if not isinstance(one, str | int | float | bool):
                raise ValueError(f"{name} must be a text, a number, true or false")
        return value

    def session(self) -> SessionOptions:
        """What a session is started with."""
        conf: Mapping[str, str] = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in parse_json_object(self.conf).items()
        }
        return SessionOptions(master=self.master, app_name=self.app_name, conf=conf)


class SparkCompactionSettings(SparkSettings, SegmentBuildingSettings):
    """`segment_compaction.spark.*`"""

    task_bytes: int = Field(
        default=8 * GIB,
        gt=0,
        description="Bytes of segments that a Spark task makes at most, about. One segment is the least.",
    )
    round_bytes: int = Field(
        default=64 * GIB,
        gt=0,
        description="Bytes of segments that a Spark job makes. The driver has the plans of up to four in memory.",
    )
    parallel_partitions: int = Field(
        default=8, ge=1, description="Partitions that a task works on at once. They share reads of WAL objects."
    )

    def building(self) -> SegmentBuildingSettings:
        """The part of them that tasks need."""
        names = SegmentBuildingSettings.model_fields
        return SegmentBuildingSettings.model_validate({name: getattr(self, name) for name in names})
