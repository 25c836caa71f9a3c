"""Hook implementations of the plugin that keeps metadata in an Apache Kafka. Its clients are imported when used."""

from __future__ import annotations

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataPlugin
from diskless_kafka.config import RemoteLogMetadataSettings


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
        )
    ]


def _connect_later(context: PluginContext, settings: RemoteLogMetadataSettings) -> RemoteLogMetadata:
    from diskless_kafka.remote_log_metadata import KafkaRemoteLogMetadata

    return KafkaRemoteLogMetadata(context, settings)
