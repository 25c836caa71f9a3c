"""Settings of the storage. Fields are properties: `folder` is `<noun>.<name>.folder`.

A password or a key is a `pydantic.SecretStr`: it is never shown, and is taken out of messages.
"""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstRemoteStorageSettings(PluginSettings):
    """`remote_storage.first_remote_storage.*`"""

    folder: str = Field(default="", description="Where segments are; empty for a folder in the first of log.dirs.")
