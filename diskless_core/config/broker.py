"""The broker's own settings. Names, types, defaults and units are Kafka's and the KIPs' wherever they have them.

(KIP-1164, "Configuration".)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from diskless_core.config.limits import at_least, at_most
from diskless_core.config.listeners import (
    DEFAULT_PROTOCOL_MAP,
    Listener,
    check_advertised,
    check_inter_broker,
    check_protocols,
)
from diskless_core.config.placement import Placement, check_shards
from diskless_core.config.types import (
    HOUR_MS,
    MAX_INT,
    MAX_LONG,
    MIB,
    MINUTE_MS,
    AdminListener,
    ConsumerAssignor,
    ConsumerAssignors,
    Folders,
    Int,
    Listeners,
    LogFormat,
    LogLevel,
    Long,
    OptionalText,
    Placements,
    ProtocolMap,
    TimestampType,
)
from diskless_core.plugin.config import Settings

_OBJECT_PREFIX = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")


def _lower_case(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class BrokerConfig(Settings):
    """All settings of a broker but those of its plugins. Field `node_id` is the property `node.id`."""

    node_id: Int = Field(
        default=1, ge=0, description="Id of this broker. Unique in the cluster and kept across restarts."
    )
    broker_rack: OptionalText = Field(
        default=None,
        description="Rack or availability zone of this broker, shown to clients.",
    )
    cluster_id: OptionalText = Field(
        default=None,
        description="Id of the cluster. Unset, one is drawn when the cluster is first started, and remembered.",
    )
    log_dirs: Folders = Field(
        default=(Path("diskless-data"),),
        min_length=1,
        description="Folder of this broker's local state. Of a list, as Kafka allows it, the first one is used.",
    )

    listener_security_protocol_map: ProtocolMap = Field(
        default=DEFAULT_PROTOCOL_MAP,
        description="Protocol of each listener by its name, as <name>:<protocol>. Until there is security, listeners "
        "are served whose protocol is PLAINTEXT.",
    )
    listeners: Listeners = Field(
        default=(Listener("PLAINTEXT", "127.0.0.1", 9092),),
        min_length=1,
        description="Addresses to listen on, as <name>://<host>:<port>. An empty host means all interfaces, "
        "port 0 any free port. Names are those of listener.security.protocol.map.",
    )
    advertised_listeners: Listeners = Field(
        default=(),
        description="Addresses that clients are told to connect to. Unset, those of listeners, which is refused "
        "where one listens on all interfaces. Port 0 stands for the port that was really bound.",
    )
    inter_broker_listener_name: OptionalText = Field(
        default=None,
        description="Name of the listener for other brokers, which serves the Diskless coordinators of this one. It is "
        "not for clients: until there is security, whoever reaches it may do what a broker may. Unset, there is none, "
        "which is right for a single broker.",
    )
    admin_listener: AdminListener = Field(
        default=Listener("http", "127.0.0.1", 9644),
        description="Address of the HTTP interface for health, metrics and plugins. Empty, there is none.",
    )
    socket_request_max_bytes: Int = Field(
        default=100 * MIB, ge=1, description="Size of the largest request accepted, in bytes."
    )
    connections_max_idle_ms: Long = Field(
        default=600_000, ge=1, description="Time after which an idle connection is closed, in milliseconds."
    )
    max_connections: Int = Field(
        default=MAX_INT, ge=1, description="How many client connections the broker accepts at the same time."
    )

    num_partitions: Int = Field(
        default=1, ge=1, description="Partitions of a topic that is created without saying how many."
    )
    default_replication_factor: Annotated[int, Field(le=2**15 - 1)] = Field(
        default=1,
        ge=1,
        description="Replication factor of a topic that is created without one. It is kept and shown; "
        "how often data is stored is up to the object store.",
    )
    auto_create_topics_enable: bool = Field(
        default=True, description="Whether a client's question for an unknown topic may create it."
    )
    message_max_bytes: Int = Field(
        default=MIB + 12, ge=0, description="Size of the largest record batch accepted, in bytes, compressed as sent."
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
    producer_id_expiration_ms: Int = Field(
        default=86_400_000,
        ge=1,
        description="Time after a producer's last batch in a partition when its sequence numbers are forgotten, "
        "in milliseconds.",
    )

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
        default=0,
        ge=0,
        description="How long an empty group waits for more members before its first rebalance, in milliseconds. "
        "Kafka waits 3000, which spares groups of many members some rebalances; 0 gives the only consumer on a "
        "laptop its partitions at once.",
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

    diskless_metadata_topic_num_partitions: Int = Field(
        default=1,
        ge=1,
        description="Number of Diskless coordinators, each a partition of the metadata topic. It can be raised: the "
        "new ones get partitions that are created from then on. It can't be lowered.",
    )
    diskless_coordinator_placement: Placements = Field(
        default=(),
        description="Which brokers may lead which coordinator, as <coordinator>:<broker>|<broker>: 0:1|2,1:3 lets the "
        "first Diskless coordinator be led by broker 1 or 2, and the second by broker 3. Others are called cluster-0 "
        "and groups-0; * is all that are not named, so that *:1|2 keeps coordinators off all other brokers. Empty, any "
        "broker may lead any. The same on all brokers.",
    )
    metadata_log_max_record_bytes_between_snapshots: Long = Field(
        default=20 * MIB,
        ge=1,
        description="Bytes of a coordinator's log after which its state is put into the object store as a snapshot, "
        "and the log pruned.",
    )
    metadata_log_max_snapshot_interval_ms: Long = Field(
        default=HOUR_MS,
        ge=1,
        description="Time after which a coordinator that has anything new is put into a snapshot, in milliseconds.",
    )
    diskless_append_commit_interval_ms: Int = Field(
        default=250, ge=1, description="Longest time that produced data waits for its WAL object, in milliseconds."
    )
    diskless_append_buffer_max_bytes: Int = Field(
        default=8 * MIB, ge=1, description="Size at which a WAL object is complete and uploaded, in bytes."
    )
    diskless_append_linger_ms: Int = Field(
        default=-1,
        ge=-1,
        description="Shortest time that produced data is gathered while no upload is under way, in milliseconds. "
        "-1 is 0 where the object store's requests cost nothing, else the commit interval.",
    )
    diskless_append_inflight_max_bytes: Long = Field(
        default=128 * MIB,
        ge=1,
        description="Memory for data that is accepted but not committed yet, in bytes. Above it, no connection is "
        "read until some of it is committed. Large requests that are still arriving may take as much again.",
    )
    diskless_append_upload_parallelism: Int = Field(
        default=4, ge=1, description="How many WAL objects are uploaded at the same time."
    )
    diskless_fetch_cache_max_bytes: Long = Field(
        default=128 * MIB, ge=0, description="Memory for WAL objects that consumers read again, in bytes."
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

    log_format: LogFormat = Field(default=LogFormat.TEXT, description="Format of the broker's own log.")
    log_level: Annotated[LogLevel, BeforeValidator(_lower_case)] = Field(
        default=LogLevel.INFO, description="Least severe message in the broker's own log."
    )

    @property
    def data_dir(self) -> Path:
        """The folder of `log.dirs` that is used."""
        return self.log_dirs[0]

    @property
    def retention_ms(self) -> int:
        """How long records are kept by default, in milliseconds, by the finest of three settings; -1 is for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return _times(self.log_retention_minutes, MINUTE_MS)
        return _times(self.log_retention_hours, HOUR_MS)

    def append_linger_ms(self, *, requests_are_billed: bool) -> int:
        """The linger time that holds for an object store whose requests are, or are not, billed, in milliseconds."""
        if self.diskless_append_linger_ms >= 0:
            return self.diskless_append_linger_ms
        return self.diskless_append_commit_interval_ms if requests_are_billed else 0

    @field_validator("listeners")
    @classmethod
    def _served(cls, value: tuple[Listener, ...], info: ValidationInfo) -> tuple[Listener, ...]:
        check_protocols(value, info.data.get("listener_security_protocol_map", DEFAULT_PROTOCOL_MAP))
        return value

    @field_validator("inter_broker_listener_name")
    @classmethod
    def _for_brokers(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and "listeners" in info.data:
            check_inter_broker(value, info.data["listeners"], info.data.get("advertised_listeners", ()))
        return value

    @field_validator("advertised_listeners")
    @classmethod
    def _reachable(cls, value: tuple[Listener, ...], info: ValidationInfo) -> tuple[Listener, ...]:
        listeners = info.data.get("listeners")
        if listeners is None:
            return value
        advertised = value or listeners
        check_advertised(advertised, listeners)
        return tuple(advertised)

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
        shards = info.data.get("diskless_metadata_topic_num_partitions")
        if shards is not None:
            check_shards(value, shards)
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


def _times(value: int, unit_ms: int) -> int:
    return -1 if value < 0 else value * unit_ms
