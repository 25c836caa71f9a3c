"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.coordinator_store import CoordinatorStorePlugin
from diskless_core.plugin.hookspecs import hookimpl

from diskless_first_coordinator_store.settings import FirstCoordinatorStoreSettings
from diskless_first_coordinator_store.store import FirstCoordinatorStoreStore


@hookimpl
def diskless_coordinator_stores() -> list[CoordinatorStorePlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        CoordinatorStorePlugin(
            name="first_coordinator_store",
            factory=FirstCoordinatorStoreStore,
            settings=FirstCoordinatorStoreSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Keeps coordinator state as ordered pairs of keys and values.",
        )
    ]
