"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataPlugin

from diskless_first_remote_log_metadata.metadata import FirstRemoteLogMetadataMetadata
from diskless_first_remote_log_metadata.settings import FirstRemoteLogMetadataSettings


@hookimpl
def diskless_remote_log_metadatas() -> list[RemoteLogMetadataPlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        RemoteLogMetadataPlugin(
            name="first_remote_log_metadata",
            factory=FirstRemoteLogMetadataMetadata,
            settings=FirstRemoteLogMetadataSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Keeps the metadata of segments in a file of the broker.",
        )
    ]
