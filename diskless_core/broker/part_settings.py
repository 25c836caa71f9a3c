"""What the parts of a broker are told, from its configuration and its topics."""

from __future__ import annotations

import uuid

from diskless_core.cluster.topics import Topics
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.snapshotter import SnapshotRules
from diskless_core.diskless.commands import PartitionKey
from diskless_core.files.retention import RetentionRules
from diskless_core.files.retention_worker import RulesOf
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.produce.writer import WriterSettings
from diskless_core.quotas.rate import Window


def writer_settings(config: BrokerConfig, objects: WalObjectStore) -> WriterSettings:
    """How the writer packs WAL objects for a store."""
    return WriterSettings(
        commit_interval_ms=config.diskless_append_commit_interval_ms,
        linger_ms=config.append_linger_ms(requests_are_billed=objects.requests_are_billed),
        buffer_max_bytes=config.diskless_append_buffer_max_bytes,
        inflight_max_bytes=config.diskless_append_inflight_max_bytes,
        object_prefix=config.diskless_wal_object_prefix,
    )


def retention_rules(topics: Topics) -> RulesOf:
    """What retention a partition's topic asks for."""

    def rules_of(partition: PartitionKey) -> RetentionRules | None:
        info = topics.by_id(uuid.UUID(bytes=partition.topic_id))
        if info is None:
            return None
        settings = info.effective_configs
        return RetentionRules(
            retention_ms=int(settings["retention.ms"]), retention_bytes=int(settings["retention.bytes"])
        )

    return rules_of


def quota_window(config: BrokerConfig) -> Window:
    """Over what time rates are measured."""
    return Window(samples=config.quota_window_num, sample_ms=config.quota_window_size_seconds * 1000)


def snapshot_rules(config: BrokerConfig) -> SnapshotRules:
    """When a shard is put into a snapshot."""
    return SnapshotRules(
        max_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        max_age_ms=config.metadata_log_max_snapshot_interval_ms,
    )
