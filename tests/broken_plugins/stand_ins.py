"""Loadable plugins of all nouns under the default names, so that a test of one plugin needs no real others."""

from __future__ import annotations

from pydantic import Field, SecretStr

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin_host.nouns import NOUNS
from tests.broken_plugins.zoo import announce


class ObjectStoreSettings(PluginSettings):
    url: str = Field(default="memory://", description="Where objects go.")
    endpoint_url: str | None = Field(default=None, description="Address of the service.")
    secret_key: SecretStr | None = Field(default=None, description="Key of the service.")
    timeout_ms: int = Field(default=1000, ge=1, description="Time-out of a request, in milliseconds.")


def refuse(context, settings):
    raise NotImplementedError


SETTINGS = {"wal_object_store": ObjectStoreSettings}


def hook_of(noun):
    """A hook that returns the noun's default backend."""

    def hook():
        settings = SETTINGS.get(noun.name, PluginSettings)
        return [
            noun.descriptor(name=noun.default, factory=refuse, settings=settings, api_version="1.0", help="Stands in.")
        ]

    return hookimpl(hook)


globals().update({noun.hook: hook_of(noun) for noun in NOUNS.values()})


def announce_stand_ins():
    """Entry points for all of them, as if the distribution `diskless` had them."""
    return [
        announce("stand_ins", noun=noun.name, name=noun.default, distribution="diskless", version="0")
        for noun in NOUNS.values()
    ]
