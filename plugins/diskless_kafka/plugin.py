"""Hook implementations of the plugins that keep metadata in an Apache Kafka. Its clients are imported when used."""

from __future__ import annotations

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogPlugin
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataPlugin
from diskless_kafka.config import RemoteLogMetadataSettings
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.place_apart import log_apart, metadata_apart


@hookimpl
def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
    """The coordinator log in topics of an Apache Kafka."""
    return [
        CoordinatorLogPlugin(
            name="kafka",
            factory=_open_log_later,
            settings=KafkaLogSettings,
            api_version="1.0",
            help="In the topic __diskless_metadata and its siblings of an Apache Kafka, for several brokers.",
            place_apart=log_apart,
        )
    ]


@hookimpl
def diskless_remote_log_metadatas() -> list[RemoteLogMetadataPlugin]:
    """Remote segments as an Apache Kafka with tiered storage keeps them."""
    return [
        RemoteLogMetadataPlugin(
            name="kafka",
            factory=_connect_later,
            settings=RemoteLogMetadataSettings,
            api_version="1.0",
            help="In the topic __remote_log_metadata of an Apache Kafka, whose brokers can read them.",
            place_apart=metadata_apart,
        )
    ]


def _connect_later(context: PluginContext, settings: RemoteLogMetadataSettings) -> RemoteLogMetadata:
    from diskless_kafka.remote_log_metadata import KafkaRemoteLogMetadata

    return KafkaRemoteLogMetadata(context, settings)


def _open_log_later(context: PluginContext, settings: KafkaLogSettings) -> CoordinatorLog:
    from diskless_kafka.kafka_log import KafkaCoordinatorLog

    return KafkaCoordinatorLog(context, settings)
