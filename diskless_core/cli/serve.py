"""`diskless serve`: run a broker until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import cProfile
import json
import os
import signal
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
import uvloop

from diskless_core import logs
from diskless_core.broker import memory, open_files
from diskless_core.broker.errors import StartError
from diskless_core.broker.node import Node
from diskless_core.cli.common import ConfigOption, OverrideOption, discover_plugins, fail, load_or_exit
from diskless_core.clock import SystemClock
from diskless_core.config.load import LoadedConfig
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.plugin.config import secret_values
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import backend_errors

if TYPE_CHECKING:
    from diskless_core.admin.http import AdminServer

PROFILE_VARIABLE = "DISKLESS_PROFILE"
"""A file that gets a cProfile of the event loop's thread when the broker ends."""

_START_ERRORS: tuple[type[Exception], ...] = (
    StartError,
    PluginError,
    CoordinatorError,
    *backend_errors(),
)

_log = structlog.get_logger(__name__)

app = typer.Typer(add_completion=False)


@app.command()
def serve(
    config: ConfigOption = None,
    override: OverrideOption = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file",
            metavar="FILE",
            help="Write process id and addresses to this file, once clients can connect.",
        ),
    ] = None,
) -> None:
    """Run a broker. Without a configuration it listens on 127.0.0.1:9092 and keeps its data in ./diskless-data."""
    plugins = discover_plugins()
    loaded = load_or_exit(config, override, plugins)
    secrets = [value for selected in loaded.plugins.values() for value in secret_values(selected.settings)]
    logs.configure(loaded.broker.log_format, loaded.broker.log_level, loaded.broker.node_id, secrets=secrets)
    memory.keep_freed_memory()
    open_files.raise_limit()
    profile_path = os.environ.get(PROFILE_VARIABLE)
    profile = cProfile.Profile() if profile_path else None
    try:
        if profile is not None:
            profile.enable()
        uvloop.run(_run(loaded, plugins, ready_file))
    except _START_ERRORS as error:
        fail(str(error))
    finally:
        if profile is not None and profile_path is not None:
            profile.disable()
            profile.dump_stats(profile_path)


async def _run(loaded: LoadedConfig, plugins: PluginManager, ready_file: Path | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        node = Node(loaded, plugins, SystemClock())
        stack.push_async_callback(node.stop)
        admin = _bound_admin(node, plugins)
        if admin is not None:
            stack.push_async_callback(admin.stop)
        await node.start()
        listeners = {name: f"{endpoint.host}:{endpoint.port}" for name, endpoint in node.endpoints.items()}
        if admin is not None:
            admin.start()
        _log.info(
            "ready for clients",
            version=version("diskless"),
            cluster=node.cluster_id,
            listeners=listeners,
            data=str(loaded.broker.data_dir.absolute()),
            open_files_limit=open_files.limit(),
        )
        if ready_file is not None:
            address = admin.url if admin is not None else None
            _write_ready_file(ready_file, {"pid": os.getpid(), "listeners": listeners, "admin": address})
        memory.settle_garbage_collector()
        await stopping.wait()
        _log.info("stopping")
    _log.info("stopped")


def _bound_admin(node: Node, plugins: PluginManager) -> AdminServer | None:
    listener = node.config.admin_listener
    if listener is None:
        return None
    from diskless_core.admin.http import AdminServer
    from diskless_core.admin.sources import Sources

    sources = Sources(
        metrics=node.metrics,
        readiness=node.not_ready,
        plugins=plugins,
        shards=node.shard_status,
        orphans=node.scan_for_orphans,
        compactor=lambda: node.tiered_storage().compactor,
        remote_log=lambda: node.tiered_storage().remote_log,
        layouts=lambda: node.tiered_storage().layouts,
    )
    server = AdminServer(listener, sources)
    try:
        server.bind()
    except OSError as error:
        raise StartError(
            f"cannot listen on admin.listener={listener}: {error.strerror or error}. Is another broker running? "
            f"Set it to another address, or to nothing"
        ) from error
    return server


def _write_ready_file(path: Path, content: dict[str, object]) -> None:
    """Whoever waits for the file finds it whole."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)
