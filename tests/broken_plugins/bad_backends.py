"""Backends with mistakes that would otherwise show only when they are used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import wraps

from diskless_core.plugin.coordinator_store import CoordinatorStore, CoordinatorStorePlugin
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.wal_object_store import ObjectInfo, WalObjectStore, WalObjectStorePlugin


class Half(WalObjectStore):
    def __init__(self, context, settings):
        raise NotImplementedError

    async def start(self):
        raise NotImplementedError


class Healthy(WalObjectStore):
    is_node_local = True
    is_process_local = True

    def __init__(self, context, settings):
        self.context = context

    async def start(self):
        raise NotImplementedError

    async def stop(self):
        raise NotImplementedError

    async def put(self, key, data):
        raise NotImplementedError

    async def get(self, key, start, end):
        raise NotImplementedError

    async def list(self, prefix=""):
        yield []

    async def delete(self, keys):
        raise NotImplementedError


class ForgotAsync(Healthy):
    def get(self, key, start, end):
        raise NotImplementedError

    def list(self, prefix=""):
        return []


class ReturnsList(Healthy):
    async def list(self, prefix="") -> AsyncIterator[Sequence[ObjectInfo]]:
        return []


class OneArgument(Healthy):
    def __init__(self, context):
        raise NotImplementedError


def counted(method):
    @wraps(method)
    def call(*args):
        return method(*args)

    return call


class Decorated(Healthy):
    @counted
    async def get(self, key, start, end):
        raise NotImplementedError

    def list(self, prefix="") -> AsyncIterator[Sequence[ObjectInfo]]:
        return super().list(prefix)


class Boom(Healthy):
    def __init__(self, context, settings):
        raise RuntimeError("boom")


def made_elsewhere(context, settings):
    return ForgotAsync(context, settings)


class Silent(Healthy):
    """Has it from nobody whether others see its objects."""

    def __getattribute__(self, name):
        if name == "is_node_local":
            raise AttributeError(name)
        return super().__getattribute__(name)


FACTORIES = {
    "half": Half,
    "healthy": Healthy,
    "forgot_async": ForgotAsync,
    "returns_list": ReturnsList,
    "one_argument": OneArgument,
    "decorated": Decorated,
    "boom": Boom,
    "made_elsewhere": made_elsewhere,
    "no_store": lambda context, settings: object(),
    "silent": Silent,
}


@hookimpl
def diskless_wal_object_stores():
    return [
        WalObjectStorePlugin(name=name, factory=factory, api_version="1.0", help="Has a mistake.")
        for name, factory in FACTORIES.items()
    ]


class AsyncOpen(CoordinatorStore):
    def __init__(self, context, settings):
        raise NotImplementedError

    async def open(self, shard, tables):
        raise NotImplementedError


@hookimpl
def diskless_coordinator_stores():
    return [CoordinatorStorePlugin(name="async_open", factory=AsyncOpen, api_version="1.0", help="Has a mistake.")]
