"""The settings that say what a broker is called and where it is reached."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from diskless_core.config.listeners import (
    DEFAULT_PROTOCOL_MAP,
    LOOPBACK_HOSTS,
    Listener,
    check_advertised,
    check_advertised_http,
    check_inter_broker,
    check_protocols,
)
from diskless_core.config.types import (
    AUTOMATIC_NODE_ID,
    MAX_INT,
    MIB,
    AdminListener,
    Folders,
    Int,
    Listeners,
    Long,
    NodeId,
    OptionalText,
    ProtocolMap,
)
from diskless_core.plugin.config import Settings


class NodeConfig(Settings):
    """Identity, folders, listeners and connections. Field `node_id` is the property `node.id`."""

    node_id: NodeId = Field(
        default=1,
        description="Id of this broker. Unique in the cluster and kept across restarts. With `auto` the cluster gives "
        "the broker one that no broker had before, which is kept in log.dirs.",
    )
    broker_rack: OptionalText = Field(
        default=None,
        description="Rack or availability zone of this broker. Clients of the same rack are led to it.",
    )
    broker_heartbeat_interval_ms: Int = Field(
        default=2_000, ge=1, description="How often a broker sends the controller a heartbeat, in milliseconds."
    )
    broker_session_timeout_ms: Int = Field(
        default=9_000,
        ge=1,
        description="Time without a heartbeat after which the controller fences a broker, in milliseconds: clients are "
        "not sent to it any more, and others take over what it leads. The same on all brokers.",
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
        "which is right for a single broker. Where brokers share the coordinator log each needs one, of the same name.",
    )
    admin_listener: AdminListener = Field(
        default=Listener("http", "127.0.0.1", 9644),
        description="Address of the HTTP interface for health, metrics and plugins. Empty, there is none.",
    )
    advertised_admin_listener: AdminListener = Field(
        default=None,
        description="Where tools on other machines reach the HTTP interface: any broker tells them. Unset, it is "
        "admin.listener; if that listens on all interfaces, with the advertised host of the inter-broker listener; if "
        "it is a loopback address and that host is not, tools are told of none. Port 0 stands for the port that was "
        "really bound.",
    )
    socket_request_max_bytes: Int = Field(
        default=100 * MIB, ge=1, description="Size of the largest request accepted, in bytes."
    )
    connections_max_idle_ms: Long = Field(
        default=600_000, ge=1, description="Time after which an idle connection is closed, in milliseconds."
    )
    diskless_startup_timeout_ms: Long = Field(
        default=60_000,
        ge=0,
        description="How long a start waits for a WAL object store that cannot be reached, in milliseconds, before the "
        "broker ends with an error. 0: it does not wait.",
    )
    diskless_shutdown_timeout_ms: Long = Field(
        default=5_000,
        ge=1,
        description="How long a stop waits for what was produced to be stored and committed, and for requests to be "
        "answered, in milliseconds. What is not acknowledged by then is given up: producers send it again.",
    )
    max_connections: Int = Field(
        default=MAX_INT, ge=1, description="How many client connections the broker accepts at the same time."
    )

    @property
    def asks_for_node_id(self) -> bool:
        """Whether the cluster gives this broker its node id, and has not yet: `node_id` is none then."""
        return self.node_id == AUTOMATIC_NODE_ID

    @property
    def data_dir(self) -> Path:
        """The folder of `log.dirs` that is used."""
        return self.log_dirs[0]

    @property
    def is_local(self) -> bool:
        """Whether clients are told addresses only that nobody reaches from another machine."""
        hosts = {one.host for one in self.advertised_listeners if one.name != self.inter_broker_listener_name}
        return hosts <= LOOPBACK_HOSTS

    @field_validator("broker_session_timeout_ms")
    @classmethod
    def _longer_than_heartbeats(cls, value: int, info: ValidationInfo) -> int:
        heartbeat_ms = info.data.get("broker_heartbeat_interval_ms")
        if heartbeat_ms is not None and value <= heartbeat_ms:
            raise ValueError(f"it has to be more than broker.heartbeat.interval.ms, which is {heartbeat_ms}")
        return value

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

    @field_validator("advertised_admin_listener")
    @classmethod
    def _http_that_is_reached(cls, value: Listener | None, info: ValidationInfo) -> Listener | None:
        if value is not None:
            check_advertised_http(value, info.data.get("admin_listener"))
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
