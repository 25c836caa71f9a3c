"""The settings of tiered storage, with the names and defaults of Kafka and KIP-405."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from diskless_core.config.limits import at_least
from diskless_core.config.types import HOUR_MS, Int, Long
from diskless_core.plugin.config import Settings


class TieringConfig(Settings):
    """When segments are made, how they are read, and when they go."""

    remote_log_storage_system_enable: bool = Field(
        default=False,
        description="Whether topics may have remote.storage.enable=true, and those that do are compacted into segments "
        "by and by. Segments that there are can be read in any case, and `diskless compact` makes them of any topic.",
    )
    remote_log_manager_task_interval_ms: Long = Field(
        default=30_000,
        ge=1,
        description="How often is looked for records to be compacted, and for segments to be removed, in milliseconds.",
    )
    remote_log_manager_task_retry_backoff_ms: Long = Field(
        default=500,
        ge=1,
        description="Wait after the first failure of a step of copying or removing a segment, in milliseconds. It "
        "doubles with each further one.",
    )
    remote_log_manager_task_retry_backoff_max_ms: Long = Field(
        default=30_000, ge=1, description="Longest of these waits, in milliseconds."
    )
    remote_log_manager_task_retry_jitter: float = Field(
        default=0.2, ge=0, le=0.5, description="Part of these waits that is random, to either side."
    )
    remote_log_manager_copier_thread_pool_size: Int = Field(
        default=10, ge=1, description="How many partitions a compaction copies at the same time."
    )
    diskless_compaction_driver_session_timeout_ms: Long = Field(
        default=60_000,
        ge=1000,
        description="A `diskless compact --here` that is silent for so long has lost its job, in milliseconds. Others "
        "wait for it until then.",
    )
    remote_log_index_file_cache_total_size_bytes: Long = Field(
        default=64 * 1024 * 1024,
        ge=1,
        description="Memory for the indexes of segments that are read, in bytes. Kafka keeps them on its disk, and "
        "1073741824 of them.",
    )
    diskless_segment_cache_max_bytes: Long = Field(
        default=128 * 1024 * 1024,
        ge=16 * 1024 * 1024,
        description="Memory for parts of segments that consumers read, in bytes. Each that reads from beginning to end "
        "needs some 1 MiB of it, and makes use of 5 MiB where there is room.",
    )
    remote_log_reader_threads: Int = Field(
        default=10, ge=1, description="How many reads of segments go on at the same time."
    )
    remote_log_reader_max_pending_tasks: Int = Field(
        default=100,
        ge=1,
        description="How many more reads of segments may wait. Beyond it, a Fetch is answered without them.",
    )
    remote_fetch_max_wait_ms: Int = Field(
        default=500, ge=1, description="Longest time that a Fetch waits for a segment to be read, in milliseconds."
    )
    remote_list_offsets_request_timeout_ms: Long = Field(
        default=30_000,
        ge=1,
        description="Longest time that ListOffsets looks for a timestamp, in milliseconds, where the request does not "
        "say.",
    )
    remote_partition_remover_task_interval_ms: Long = Field(
        default=HOUR_MS,
        ge=1,
        description="How often is looked for segments of deleted partitions that could not be removed at once, in "
        "milliseconds.",
    )
    log_local_retention_ms: Long = Field(
        default=-2,
        ge=-2,
        description="Age of records from which on they are in segments, in milliseconds, also if that makes a segment "
        "that is not full; -2 is retention.ms, that is, full ones only, and -1 no limit.",
    )
    log_local_retention_bytes: Long = Field(
        default=-2,
        ge=-2,
        description="Size of a partition's part in WAL objects above which its records go into segments, in bytes, "
        "also if that makes a segment that is not full; -2 is retention.bytes, that is, full ones only; -1 no limit.",
    )

    @field_validator("remote_log_manager_task_retry_backoff_max_ms")
    @classmethod
    def _not_below_the_first(cls, value: int, info: ValidationInfo) -> int:
        return at_least("remote_log_manager_task_retry_backoff_ms", value, info)
