"""The settings that say what becomes of records: the defaults of topics, and how often retention looks at them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from diskless_core.config.types import (
    HOUR_MS,
    MAX_LONG,
    MIB,
    MINUTE_MS,
    CleanupPolicies,
    CleanupPolicy,
    CompressionType,
    Int,
    Long,
    TimestampType,
)
from diskless_core.plugin.config import Settings


class LogConfig(Settings):
    """Topics' defaults, retention, segments."""

    num_partitions: Int = Field(
        default=1, ge=1, description="Partitions of a topic that is created without saying how many."
    )
    default_replication_factor: Annotated[int, Field(le=2**15 - 1)] = Field(
        default=1,
        ge=1,
        description="Replication factor of a topic that is created without one. It is kept and shown; "
        "how often data is stored is up to the object store.",
    )
    min_insync_replicas: Int = Field(
        default=1,
        ge=1,
        description="Kept and shown, without an effect: how often data is stored is up to the object store.",
    )
    auto_create_topics_enable: bool = Field(
        default=True, description="Whether a client's question for an unknown topic may create it."
    )
    message_max_bytes: Int = Field(
        default=MIB + 12, ge=0, description="Size of the largest record batch accepted, in bytes, compressed as sent."
    )
    compression_type: CompressionType = Field(
        default=CompressionType.PRODUCER,
        description="The codec that batches are stored with. Those that come with another one, or none, are compressed "
        "again; uncompressed stores them without one, and producer as they come, which costs the broker nothing.",
    )
    compression_gzip_level: Int = Field(
        default=-1,
        ge=-1,
        le=9,
        description="Level at which batches are compressed where compression.type is gzip: 1 is the fastest, 9 the "
        "smallest, -1 a good mean.",
    )
    compression_lz4_level: Int = Field(
        default=9,
        ge=1,
        le=17,
        description="Level at which batches are compressed where compression.type is lz4: 9 is the fastest; of the "
        "others, the higher the smaller.",
    )
    compression_zstd_level: Int = Field(
        default=3,
        ge=-(1 << 17),
        le=22,
        description="Level at which batches are compressed where compression.type is zstd: the higher, the smaller and "
        "slower.",
    )
    log_cleanup_policy: CleanupPolicies = Field(
        default=(CleanupPolicy.DELETE,),
        description="What becomes of old records: delete removes them by log.retention.*; empty, they stay until "
        "someone deletes them. There are no compacted topics.",
    )
    log_message_timestamp_type: TimestampType = Field(
        default=TimestampType.CREATE_TIME,
        description="Whether a record has the producer's timestamp or that of its commit.",
    )
    log_message_timestamp_before_max_ms: Long = Field(
        default=MAX_LONG,
        ge=0,
        description="How far a CreateTime may lie in the past when the broker gets it, in milliseconds.",
    )
    log_message_timestamp_after_max_ms: Long = Field(
        default=HOUR_MS,
        ge=0,
        description="How far a CreateTime may lie in the future when the broker gets it, in milliseconds.",
    )
    log_retention_ms: Annotated[Long | None, BeforeValidator(lambda value: None if value == "" else value)] = Field(
        default=None,
        ge=-1,
        description="How long records are kept, in milliseconds; -1 is for ever. Unset, log.retention.minutes decides.",
    )
    log_retention_minutes: Annotated[Int | None, BeforeValidator(lambda value: None if value == "" else value)] = Field(
        default=None,
        ge=-1,
        description="How long records are kept, in minutes; -1 is for ever. Unset, log.retention.hours decides.",
    )
    log_retention_hours: Int = Field(
        default=168, ge=-1, description="How long records are kept, in hours; -1 is for ever."
    )
    log_retention_bytes: Long = Field(
        default=-1,
        ge=-1,
        description="Size of a partition above which its oldest batches go, in bytes; -1 is no limit.",
    )
    log_retention_check_interval_ms: Long = Field(
        default=300_000,
        ge=1,
        description="How often is looked for records that retention removes, in milliseconds.",
    )
    log_initial_task_delay_ms: Long = Field(
        default=30_000,
        ge=0,
        description="Time from the broker's start to its first look for what retention removes, in milliseconds.",
    )
    log_segment_bytes: Int = Field(
        default=1024 * MIB, ge=MIB, description="Size of the segments that compaction makes, in bytes."
    )
    log_roll_ms: Annotated[Long | None, BeforeValidator(lambda value: None if value == "" else value)] = Field(
        default=None,
        ge=1,
        description="Longest time that a segment covers, in milliseconds. Unset, log.roll.hours decides.",
    )
    log_roll_hours: Int = Field(default=168, ge=1, description="Longest time that a segment covers, in hours.")
    log_index_interval_bytes: Int = Field(
        default=4096, ge=0, description="Distance between two entries of a segment's offset index, in bytes."
    )
    producer_id_expiration_ms: Int = Field(
        default=86_400_000,
        ge=1,
        description="Time after a producer's last batch in a partition when its sequence numbers may be forgotten, "
        "in milliseconds. They are at the next check, see `producer.id.expiration.check.interval.ms`.",
    )
    producer_id_expiration_check_interval_ms: Int = Field(
        default=600_000,
        ge=1,
        description="How often is looked for producers that were silent for `producer.id.expiration.ms`, in "
        "milliseconds.",
    )

    @field_validator("compression_gzip_level")
    @classmethod
    def _is_gzip_level(cls, value: int) -> int:
        if value == 0:
            raise ValueError("it has to be between 1 and 9, or -1")
        return value

    @property
    def retention_ms(self) -> int:
        """How long records are kept by default, in milliseconds, by the finest of three settings; -1 is for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return _times(self.log_retention_minutes, MINUTE_MS)
        return _times(self.log_retention_hours, HOUR_MS)


def _times(value: int, unit_ms: int) -> int:
    return -1 if value < 0 else value * unit_ms
