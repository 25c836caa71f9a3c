"""Settings of the store. Fields are properties: `page_objects` is `<noun>.<name>.page.objects`.

A password or a key is a `pydantic.SecretStr`: it is never shown, and is taken out of messages.
"""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstWalObjectStoreSettings(PluginSettings):
    """`wal_object_store.first_wal_object_store.*`"""

    folder: str = Field(default="", description="Where the objects are; empty for a folder in the first of log.dirs.")
    page_objects: int = Field(default=1000, ge=1, description="Objects in one page of a listing.")
