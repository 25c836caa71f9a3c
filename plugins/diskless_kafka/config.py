"""Settings of the `kafka` plugins: how to reach an Apache Kafka, and `remote_log_metadata.kafka.<setting>`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from diskless_core.plugin.config import CommaSeparated, PluginSettings, SecretJsonObject, parse_json_object

UNLIMITED = -1


class HiddenText(str):
    """A text that is not shown where the settings of a client are logged."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'**********'"


class KafkaClientSettings(PluginSettings):
    """How the clients of an Apache Kafka connect to it.

    `common.client.options` and those that are named after a kind of client are JSON objects of further settings of
    librdkafka, by its names: {"socket.timeout.ms": 5000}.
    """

    bootstrap_servers: CommaSeparated = Field(
        min_length=1, description="Brokers of the Apache Kafka, as host:port, separated by commas."
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="How to connect: whether with TLS, and whether with SASL."
    )
    ssl_ca_location: str = Field(
        default="", description="PEM file of the authorities that brokers' certificates come from. Empty: the system's."
    )
    ssl_certificate_location: str = Field(
        default="", description="PEM file of the client's certificate. Empty: it has none."
    )
    ssl_key_location: str = Field(default="", description="PEM file of the key of the client's certificate.")
    ssl_key_password: SecretStr | None = Field(default=None, description="Password of that key, if it has one.")
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="", description="How to authenticate with SASL; needed with SASL_PLAINTEXT and SASL_SSL."
    )
    sasl_username: str = Field(default="", description="The user's name for SASL.")
    sasl_password: SecretStr | None = Field(default=None, description="The user's password for SASL.")
    common_client_options: SecretJsonObject = Field(
        default=SecretStr("{}"), description="JSON object of further settings of all clients, by librdkafka's names."
    )
    producer_options: SecretJsonObject = Field(
        default=SecretStr("{}"), description="JSON object of further settings of the producer; they take precedence."
    )
    consumer_options: SecretJsonObject = Field(
        default=SecretStr("{}"), description="JSON object of further settings of the consumer; they take precedence."
    )
    admin_options: SecretJsonObject = Field(
        default=SecretStr("{}"),
        description="JSON object of further settings of the admin client; they take precedence.",
    )

    @model_validator(mode="after")
    def _complete(self) -> KafkaClientSettings:
        if self.security_protocol.startswith("SASL_") and not (self.sasl_mechanism and self.sasl_password):
            raise ValueError(f"security.protocol={self.security_protocol} needs sasl.mechanism and sasl.password")
        if self.ssl_certificate_location and not self.ssl_key_location:
            raise ValueError("ssl.certificate.location needs ssl.key.location")
        return self

    def client_options(self, *kind: SecretStr) -> dict[str, Any]:
        """Settings of a client by librdkafka's names, for it and nothing else: there are secrets among them.

        Args:
            kind: the options of this kind of client.
        """
        options = {
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "security.protocol": self.security_protocol,
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
            "ssl.key.password": _hidden(self.ssl_key_password),
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.sasl_username,
            "sasl.password": _hidden(self.sasl_password),
        }
        given: dict[str, Any] = {name: value for name, value in options.items() if value}
        for further in (self.common_client_options, *kind):
            given |= _parsed(further)
        return given


class RemoteLogMetadataSettings(KafkaClientSettings):
    """Properties `remote_log_metadata.kafka.*`: Apache Kafka's `remote.log.metadata.*`."""

    topic_name: str = Field(
        default="__remote_log_metadata",
        min_length=1,
        description="The topic. An Apache Kafka with tiered storage reads the default one, and no other.",
    )
    topic_num_partitions: int = Field(
        default=50, ge=1, description="How many partitions the topic has, which has to be so if it exists already."
    )
    topic_replication_factor: int = Field(
        default=3, ge=1, le=32767, description="Replication factor of the topic, where it has to be created."
    )
    topic_min_isr: int = Field(
        default=2, ge=1, description="In-sync replicas that a write to the topic needs, where it has to be created."
    )
    topic_retention_ms: int = Field(
        default=UNLIMITED,
        ge=-1,
        description="For how many milliseconds the topic keeps records, where it has to be created: longer than any "
        "topic keeps its segments. -1: for ever.",
    )
    consume_wait_ms: int = Field(
        default=120_000,
        gt=0,
        description="How many milliseconds a change may take until it is read back from the topic.",
    )
    initialization_attempt_timeout_ms: int = Field(
        default=5_000,
        gt=0,
        description="How many milliseconds a broker that starts, or tries again, waits for an answer of the Apache "
        "Kafka.",
    )
    initialization_retry_interval_ms: int = Field(
        default=100,
        gt=0,
        description="After how many milliseconds a broker that has not reached the Apache Kafka yet tries again: each "
        "time twice as many, up to 10 seconds.",
    )
    snapshot_interval_ms: int = Field(
        default=60_000,
        gt=0,
        description="Every so many milliseconds this node writes what it has read to its own disk, so that a restart "
        "need not read all of the topic.",
    )

    @field_validator("topic_retention_ms")
    @classmethod
    def _positive_or_unlimited(cls, value: int) -> int:
        if value == 0:
            raise ValueError("must be -1 or positive")
        return value

    def topic_configs(self) -> Mapping[str, str]:
        """What the topic is created with, as Apache Kafka would do it."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self.topic_retention_ms),
            "min.insync.replicas": str(self.topic_min_isr),
            "remote.storage.enable": "false",
        }


def _hidden(secret: SecretStr | None) -> HiddenText | None:
    return None if secret is None else HiddenText(secret.get_secret_value())


def _parsed(options: SecretStr) -> dict[str, Any]:
    return {
        name: HiddenText(value) if isinstance(value, str) else value
        for name, value in parse_json_object(options).items()
    }
