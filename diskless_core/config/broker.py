"""The broker's own settings. Names, types, defaults and units are Kafka's and the KIPs' wherever they have them.

(KIP-1164, "Configuration".)
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from diskless_core.config.client_racks import ListenerRack, check_listener_racks
from diskless_core.config.limits import at_least, at_most
from diskless_core.config.log import LogConfig
from diskless_core.config.node import NodeConfig
from diskless_core.config.placement import OTHER_NAMES, Placement, check_shards
from diskless_core.config.tiering import TieringConfig
from diskless_core.config.types import (
    HOUR_MS,
    MAX_INT,
    MIB,
    MINUTE_MS,
    ConsumerAssignor,
    ConsumerAssignors,
    Int,
    ListenerRacks,
    LogFormat,
    LogLevel,
    Long,
    NetworkRacks,
    Placements,
    RecordValidation,
)
from diskless_core.protocol import record_walk

_OBJECT_PREFIX = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")


_LOCAL_REBALANCE_DELAY_MS = 100
_REBALANCE_DELAY_MS = 3_000


def _lower_case(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class BrokerConfig(TieringConfig, LogConfig, NodeConfig):
    """All settings of a broker but those of its plugins."""

    quota_window_num: Int = Field(
        default=11,
        ge=1,
        description="Samples from which the rate of a client is measured that has a quota, the present one included.",
    )
    quota_window_size_seconds: Int = Field(default=1, ge=1, description="Length of each of these samples, in seconds.")

    offsets_retention_minutes: Int = Field(
        default=10_080,
        ge=1,
        description="Time after which the offsets of a group without members are forgotten, in minutes.",
    )
    group_min_session_timeout_ms: Int = Field(
        default=6_000, ge=0, description="Shortest session timeout that a consumer may ask for, in milliseconds."
    )
    group_max_session_timeout_ms: Int = Field(
        default=1_800_000, ge=0, description="Longest session timeout that a consumer may ask for, in milliseconds."
    )
    group_initial_rebalance_delay_ms: Int = Field(
        default=-1,
        ge=-1,
        description="How long an empty group of the classic protocol waits for more members before its first "
        f"rebalance, in milliseconds. -1 is {_LOCAL_REBALANCE_DELAY_MS} where clients reach the broker on loopback "
        f"only, else {_REBALANCE_DELAY_MS} as in Kafka.",
    )
    group_max_size: Int = Field(
        default=MAX_INT, ge=1, description="How many members a group of the classic protocol may have."
    )
    group_consumer_min_session_timeout_ms: Int = Field(
        default=45_000, ge=1, description="Shortest session timeout of the consumer protocol, in milliseconds."
    )
    group_consumer_max_session_timeout_ms: Int = Field(
        default=60_000, ge=1, description="Longest session timeout of the consumer protocol, in milliseconds."
    )
    group_consumer_session_timeout_ms: Int = Field(
        default=45_000,
        ge=1,
        description="Time without a heartbeat after which a member of the consumer protocol is out, in milliseconds.",
    )
    group_consumer_min_heartbeat_interval_ms: Int = Field(
        default=5_000, ge=1, description="Shortest heartbeat interval of the consumer protocol, in milliseconds."
    )
    group_consumer_max_heartbeat_interval_ms: Int = Field(
        default=15_000, ge=1, description="Longest heartbeat interval of the consumer protocol, in milliseconds."
    )
    group_consumer_heartbeat_interval_ms: Int = Field(
        default=5_000,
        ge=1,
        description="How often members of the consumer protocol are told to send a heartbeat, in milliseconds.",
    )
    group_consumer_max_size: Int = Field(
        default=MAX_INT, ge=1, description="How many members a group of the consumer protocol may have."
    )
    group_consumer_assignors: ConsumerAssignors = Field(
        default=(ConsumerAssignor.UNIFORM, ConsumerAssignor.RANGE),
        min_length=1,
        description="Assignors that members of the consumer protocol may ask for, the first one for those that don't.",
    )

    diskless_auto_create_topics_wait: bool = Field(
        default=True,
        description="Whether a client's question that creates a topic is answered when the topic is there. Otherwise "
        "the answer is UNKNOWN_TOPIC_OR_PARTITION at once, and the client asks again, as with Apache Kafka: for tests "
        "of clients.",
    )
    diskless_metadata_topic_num_partitions: Int = Field(
        default=1,
        ge=1,
        description="Number of Diskless coordinators, each a partition of the metadata topic. It can be raised: the "
        "new ones get partitions that are created from then on. It can't be lowered.",
    )
    offsets_topic_num_partitions: Annotated[
        Int | None, BeforeValidator(lambda value: None if value == "" else value)
    ] = Field(
        default=None,
        ge=1,
        description="Number of group coordinators of a new cluster, each a partition of the offsets topic. Unset, the "
        "coordinator log says: 1 with local, 4 with bucket, 16 with others. The cluster keeps the number of its first "
        "start; only diskless migrate-log changes it. A broker that is told another one does not start.",
    )
    diskless_coordinator_placement: Placements = Field(
        default=(),
        description="Which brokers may lead which coordinator, as <coordinator>:<broker>|<broker>: 0:1|2,1:3 lets the "
        "first Diskless coordinator be led by broker 1 or 2, and the second by broker 3. "
        f"Others are called {OTHER_NAMES}; * is all that are not named, so that *:1|2 keeps coordinators off all other "
        "brokers. Empty, any broker may lead any. The same on all brokers.",
    )
    auto_leader_rebalance_enable: bool = Field(
        default=True,
        description="Whether coordinators move between brokers that share the coordinator log, one at a time, until "
        "all brokers lead equally many. Coordinators whose leader is gone move in any case.",
    )
    diskless_client_racks_by_listener: ListenerRacks = Field(
        default=(),
        description="Racks of clients that don't say theirs, by the listener that they use, as <listener>=<rack>: "
        "ZONE_A=eu-1a,ZONE_B=eu-1b. The same on all brokers.",
    )
    diskless_client_racks_by_network: NetworkRacks = Field(
        default=(),
        description="Racks of clients that neither say theirs nor use a listener that has one, by the range of "
        "addresses that they connect from, as <address>/<bits>=<rack>: 10.0.16.0/20=eu-1a,fd00:0:0:2::/64=eu-1b. Of "
        "several ranges that have an address, the smallest counts. The same on all brokers.",
    )
    metadata_log_max_record_bytes_between_snapshots: Long = Field(
        default=20 * MIB,
        ge=1,
        description="Bytes of a coordinator's log after which its state is put into the object store as a snapshot, "
        "and the log pruned. Where the last snapshot is larger, its size counts instead.",
    )
    metadata_log_max_snapshot_interval_ms: Long = Field(
        default=HOUR_MS,
        ge=1,
        description="Time after which a coordinator that has anything new is put into a snapshot, in milliseconds.",
    )
    diskless_append_commit_interval_ms: Int = Field(
        default=250,
        ge=1,
        description="Longest time that produced data is gathered for a WAL object while an upload slot is "
        "free, in milliseconds. While all slots are taken, the object grows up to its limits.",
    )
    diskless_append_buffer_max_bytes: Int = Field(
        default=8 * MIB,
        ge=1,
        description="Size at which a WAL object is complete and uploaded, in bytes. One of 4,096 batches is, too.",
    )
    diskless_append_linger_ms: Int = Field(
        default=-1,
        ge=-1,
        description="Shortest time that produced data is gathered while no upload is under way and no uploaded object "
        "of the same partitions waits to be committed, in milliseconds. "
        "-1 is 0 where the object store's requests cost nothing, else the commit interval.",
    )
    diskless_append_inflight_max_bytes: Long = Field(
        default=128 * MIB,
        ge=1,
        description="Memory for data that is accepted but not committed yet, in bytes. Above it, no Produce request is "
        "begun until some of it is committed. Large requests that are arriving, or wait for that, may take as much "
        "again, and so may what is on its way to a coordinator that does not answer.",
    )
    diskless_append_upload_parallelism: Int = Field(
        default=4, ge=1, description="How many WAL objects are uploaded at the same time."
    )
    diskless_produce_records_validation: RecordValidation = Field(
        default=RecordValidation.AUTO,
        description="How many records of a produced batch are checked against its header. A batch that fails is "
        "refused with INVALID_RECORD. first checks that the batch begins with a record and that its bytes can hold as "
        "many records as it counts. unpacked also checks every record of batches that come without compression, or "
        "that the broker unpacks because compression.type asks for another codec. all unpacks compressed batches for "
        "it, as Apache Kafka does. auto is unpacked where the compiled walk is installed, else first.",
    )
    fetch_max_bytes: Int = Field(
        default=55 * MIB,
        ge=1024,
        description="Size of the records in one answer to a consumer, in bytes, however much it asks for. A single "
        "batch may be larger.",
    )
    diskless_fetch_inflight_max_bytes: Long = Field(
        default=256 * MIB,
        ge=MIB,
        description="Memory for answers to consumers that are being made, or that consumers have not read, in bytes. "
        "Objects that left the cache while such answers use them may take as much again. An answer takes a "
        "quarter of what is free at most, and one batch at least. Above half of it, a connection that has read nothing "
        "for 10 seconds is closed; at the limit, one that has read nothing for 2 seconds, and further answers wait.",
    )
    diskless_fetch_cache_max_bytes: Long = Field(
        default=128 * MIB, ge=0, description="Memory for WAL objects that consumers read again, in bytes."
    )
    diskless_peer_cache_enable: bool = Field(
        default=True,
        description="Whether this broker shares its cache of WAL objects with the other live brokers of its "
        "broker.rack: each object is then read from the object store by one of them, for all. The same on all brokers.",
    )
    diskless_wal_object_prefix: str = Field(
        default="wal",
        description="Beginning of the keys of all WAL objects. What lies below it belongs to this cluster alone.",
    )
    diskless_file_delete_delay_ms: Long = Field(
        default=MINUTE_MS,
        ge=0,
        description="Time between a WAL object's last batch being deleted and the object itself, in milliseconds, "
        "for readers that still have it in their plan.",
    )
    diskless_coordinator_orphan_scan_interval_ms: Long = Field(
        default=24 * HOUR_MS,
        ge=1,
        description="How often is looked for WAL objects that nobody committed, in milliseconds.",
    )
    diskless_coordinator_orphan_scan_grace_period_ms: Long = Field(
        default=24 * HOUR_MS,
        ge=MINUTE_MS,
        description="Age from which on a WAL object that nobody committed is deleted, and can't be committed any more, "
        "in milliseconds. Longer than any upload takes, and than the brokers' clocks differ.",
    )

    unstable_api_versions_enable: bool = Field(
        default=False,
        description="Whether versions of APIs are served that may still change, and are told to clients: Metadata 14 "
        "and DescribeTopicPartitions 1, in which a client says its rack (KIP-1181).",
    )

    log_format: LogFormat = Field(default=LogFormat.TEXT, description="Format of the broker's own log.")
    log_level: Annotated[LogLevel, BeforeValidator(_lower_case)] = Field(
        default=LogLevel.INFO, description="Least severe message in the broker's own log."
    )

    def append_linger_ms(self, *, requests_are_billed: bool) -> int:
        """The linger time that holds for an object store whose requests are, or are not, billed, in milliseconds."""
        if self.diskless_append_linger_ms >= 0:
            return self.diskless_append_linger_ms
        return self.diskless_append_commit_interval_ms if requests_are_billed else 0

    @property
    def record_validation(self) -> RecordValidation:
        """How many records of a produced batch are checked: never `AUTO`."""
        if self.diskless_produce_records_validation is not RecordValidation.AUTO:
            return self.diskless_produce_records_validation
        return RecordValidation.UNPACKED if record_walk.is_compiled() else RecordValidation.FIRST

    @property
    def initial_rebalance_delay_ms(self) -> int:
        """How long an empty group of the classic protocol waits for more members, in milliseconds."""
        if self.group_initial_rebalance_delay_ms >= 0:
            return self.group_initial_rebalance_delay_ms
        return _LOCAL_REBALANCE_DELAY_MS if self.is_local else _REBALANCE_DELAY_MS

    @field_validator("group_max_session_timeout_ms")
    @classmethod
    def _above_min_session_timeout(cls, value: int, info: ValidationInfo) -> int:
        return at_least("group_min_session_timeout_ms", value, info)

    @field_validator("group_consumer_session_timeout_ms", "group_consumer_heartbeat_interval_ms")
    @classmethod
    def _within_group_limits(cls, value: int, info: ValidationInfo) -> int:
        name = str(info.field_name).removeprefix("group_consumer_")
        at_least(f"group_consumer_min_{name}", value, info)
        return at_most(f"group_consumer_max_{name}", value, info)

    @field_validator("group_consumer_heartbeat_interval_ms")
    @classmethod
    def _below_session_timeout(cls, value: int, info: ValidationInfo) -> int:
        session_timeout_ms = info.data.get("group_consumer_session_timeout_ms")
        if session_timeout_ms is not None and value >= session_timeout_ms:
            raise ValueError(f"it has to be less than group.consumer.session.timeout.ms, which is {session_timeout_ms}")
        return value

    @field_validator("diskless_coordinator_placement")
    @classmethod
    def _of_shards(cls, value: tuple[Placement, ...], info: ValidationInfo) -> tuple[Placement, ...]:
        check_shards(value, info.data)
        return value

    @field_validator("diskless_client_racks_by_listener")
    @classmethod
    def _of_listeners(cls, value: tuple[ListenerRack, ...], info: ValidationInfo) -> tuple[ListenerRack, ...]:
        if "listeners" in info.data:
            check_listener_racks(value, info.data["listeners"])
        return value

    @field_validator("diskless_append_inflight_max_bytes")
    @classmethod
    def _holds_one_object(cls, value: int, info: ValidationInfo) -> int:
        return at_least("diskless_append_buffer_max_bytes", value, info)

    @field_validator("diskless_wal_object_prefix")
    @classmethod
    def _is_key_prefix(cls, value: str) -> str:
        # An empty prefix would make the whole bucket look like orphans.
        if not _OBJECT_PREFIX.fullmatch(value) or ".." in value.split("/"):
            raise ValueError("it has to be a relative path of letters, digits, '_', '-', '.' and '=', such as wal/prod")
        return value
