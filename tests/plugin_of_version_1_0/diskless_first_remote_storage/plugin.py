"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.remote_storage import RemoteStoragePlugin

from diskless_first_remote_storage.settings import FirstRemoteStorageSettings
from diskless_first_remote_storage.storage import FirstRemoteStorageStorage


@hookimpl
def diskless_remote_storages() -> list[RemoteStoragePlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        RemoteStoragePlugin(
            name="first_remote_storage",
            factory=FirstRemoteStorageStorage,
            settings=FirstRemoteStorageSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Keeps segments as folders of files.",
        )
    ]
