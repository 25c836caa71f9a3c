"""Where a Diskless is, from the options of a query: its backends, its broker, its snapshots.

What the driver finds out here is sent to executors, which make the backends for themselves.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties
from pydantic import ValidationError

from diskless_core.clock import SystemClock
from diskless_core.plugin.config import environment_name
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.errors import PluginError, nearest
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.plugin_host.contexts import contexts_in
from diskless_core.plugin_host.manager import PluginManager, SelectedPlugin
from diskless_core.plugin_host.nouns import NOUNS, REMOTE_STORAGE, WAL_OBJECT_STORE
from diskless_core.snapshot import reading
from diskless_spark.backends import elsewhere_only, why_unreachable
from diskless_spark.source.options import SourceOptionError, SourceOptions

_ADMIN_LISTENER = "admin.listener"
_DEFAULT_ADMIN_LISTENER = "http://127.0.0.1:9644"
_WAL_OBJECT_PREFIX = "diskless.wal.object.prefix"
_DEFAULT_WAL_OBJECT_PREFIX = "wal"
_LOG_DIRS = "log.dirs"
_DEFAULT_LOG_DIRS = "diskless-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A Diskless, as it is sent to executors.

    Attributes:
        objects, segments: make the backends, not started, wherever they are needed. They hold settings, which may be
            secret.
        urls: of brokers' HTTP interfaces, at least one. Any broker answers for all.
        snapshot_prefix: what keys of snapshots begin with.
        machine: where the backends have to be used that only one machine has; None for anywhere.
    """

    objects: Callable[[], WalObjectStore] = field(repr=False)
    segments: Callable[[], RemoteStorage] = field(repr=False)
    urls: tuple[str, ...]
    snapshot_prefix: str
    machine: str | None

    def require_reach(self) -> None:
        """That this machine has the backends.

        Raises:
            SourceOptionError: it has not.
        """
        here = platform.node()
        if self.machine not in (None, here):
            raise SourceOptionError(elsewhere_only(here))


def connect(options: SourceOptions, environ: Mapping[str, str] = os.environ) -> Connection:
    """What is configured: in the options of the query, else in the environment, else in the file `diskless.config`.

    Raises:
        SourceOptionError: the file cannot be read, a plugin is missing, a setting is bad, or a backend is one that
            Spark's tasks cannot reach wherever they are.
        PluginFactoryError: a backend cannot be made.
    """
    properties = _Properties(_read(options.config), environ, options.settings)
    plugins = PluginManager.discover(environ)
    folder = Path(properties.get(_LOG_DIRS, _DEFAULT_LOG_DIRS).partition(",")[0].strip()).absolute()
    contexts = contexts_in(folder, SystemClock(), node_id=TOOL_NODE_ID)
    selected = {noun.name: _selected(noun.name, properties, plugins) for noun in (WAL_OBJECT_STORE, REMOTE_STORAGE)}
    objects = plugins.source(WAL_OBJECT_STORE, selected, contexts)
    segments = plugins.source(REMOTE_STORAGE, selected, contexts)
    backends: tuple[WalObjectStore | RemoteStorage, ...] = (objects(), segments())
    if problem := why_unreachable(*backends, elsewhere=None):
        raise SourceOptionError(problem)
    return Connection(
        objects=objects,
        segments=segments,
        machine=platform.node() if any(backend.is_node_local for backend in backends) else None,
        urls=_urls(options.url) or _urls(properties.get(_ADMIN_LISTENER, _DEFAULT_ADMIN_LISTENER)),
        snapshot_prefix=reading.prefix_beside(properties.get(_WAL_OBJECT_PREFIX, _DEFAULT_WAL_OBJECT_PREFIX)),
    )


def _urls(text: str) -> tuple[str, ...]:
    urls = (one.strip().rstrip("/") for one in text.split(","))
    return tuple(url for url in urls if url)


def _read(config: str) -> Mapping[str, str]:
    if not config:
        return {}
    try:
        found: Mapping[str, str] = javaproperties.loads(Path(config).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        raise SourceOptionError(f"diskless.config: {config} can't be read: {error}") from error
    return found


class _Properties:
    """Properties by name. Spark tells options in lower case."""

    def __init__(self, in_file: Mapping[str, str], environ: Mapping[str, str], options: Mapping[str, str]) -> None:
        self._in_file = in_file
        self._environ = environ
        self.options = options

    def find(self, key: str) -> str | None:
        given = (self.options.get(key.lower()), self._environ.get(environment_name(key)), self._in_file.get(key))
        return next((value.strip() for value in given if value is not None), None)

    def get(self, key: str, default: str) -> str:
        found = self.find(key)
        return default if found is None else found


def _selected(noun: str, properties: _Properties, plugins: PluginManager) -> SelectedPlugin:
    name = properties.get(noun, NOUNS[noun].default)
    try:
        descriptor = plugins.get(noun, name).descriptor
    except PluginError as error:
        raise SourceOptionError(f"{noun}: {error}") from error
    prefix = f"{noun}.{name}."
    names = [field.alias or key for key, field in descriptor.settings.model_fields.items()]
    known = {(prefix + one).lower(): one for one in names}
    for key in properties.options:
        if key.startswith(f"{noun}.") and key not in known:
            near = nearest(key, known)
            raise SourceOptionError(f"{key}: there is no such setting{f'; did you mean {near}?' if near else ''}")
    found = {one: value for one in names if (value := properties.find(prefix + one)) is not None}
    try:
        settings = descriptor.settings.model_validate(found)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        words = "; ".join(f"{prefix}{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems)
        # Without its cause, which may hold secrets.
        raise SourceOptionError(words) from None
    return SelectedPlugin(descriptor, settings)
