"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.wal_object_store import WalObjectStorePlugin

from diskless_first_wal_object_store.objects import FirstWalObjectStoreObjects
from diskless_first_wal_object_store.settings import FirstWalObjectStoreSettings


@hookimpl
def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        WalObjectStorePlugin(
            name="first_wal_object_store",
            factory=FirstWalObjectStoreObjects,
            settings=FirstWalObjectStoreSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Keeps WAL objects as files of a folder.",
        )
    ]
