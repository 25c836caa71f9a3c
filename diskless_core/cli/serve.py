"""`diskless serve`: run a broker until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import cProfile
import json
import os
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
import uvloop

from diskless_core import logs
from diskless_core.broker import memory, open_files
from diskless_core.broker.errors import NodeIdRetiredError, StartError
from diskless_core.broker.node import Node
from diskless_core.cli.common import ConfigOption, OverrideOption, discover_plugins, fail, load_or_exit
from diskless_core.cli.signals import stop_signals
from diskless_core.cli.stop_limit import StopLimit
from diskless_core.clock import SystemClock
from diskless_core.config.load import LoadedConfig
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.log_output import StandardStreams
from diskless_core.plugin.config import secret_values
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import backend_errors

if TYPE_CHECKING:
    from diskless_core.admin.http import AdminServer

STOP_S = 14.0
"""How much longer than `diskless.shutdown.timeout.ms` a stop may take, until it is broken off."""

PATIENCE_S = 2.0
"""A start that takes longer answers `GET /health/live` meanwhile. Others spare themselves the import of the server."""

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
    streams = StandardStreams.take_over(SystemClock())
    memory.collect_garbage_less_often()
    plugins = discover_plugins()
    loaded = load_or_exit(config, override, plugins)
    secrets = [value for selected in loaded.plugins.values() for value in secret_values(selected.settings)]
    node_id = None if loaded.broker.asks_for_node_id else loaded.broker.node_id
    logs.configure(loaded.broker.log_format, loaded.broker.log_level, node_id, secrets=secrets)
    memory.keep_freed_memory()
    open_files.raise_limit()
    profile_path = os.environ.get(PROFILE_VARIABLE)
    profile = cProfile.Profile() if profile_path else None
    try:
        if profile is not None:
            profile.enable()
        uvloop.run(_run(loaded, plugins, streams, ready_file))
    except _START_ERRORS as error:
        fail(str(error))
    finally:
        if profile is not None and profile_path is not None:
            profile.disable()
            profile.dump_stats(profile_path)


async def _run(loaded: LoadedConfig, plugins: PluginManager, streams: StandardStreams, ready_file: Path | None) -> None:
    def end_process(code: int) -> None:
        streams.drain()
        os._exit(code)

    stopping, limit = asyncio.Event(), StopLimit(end_process)
    limit_s = loaded.broker.diskless_shutdown_timeout_ms / 1000 + STOP_S

    def stop() -> None:
        stopping.set()
        limit.begin(limit_s)

    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stop)
    await _serve(loaded, plugins, streams, ready_file, stopping)
    _log.info("stopped")
    limit.stopped()


async def _serve(
    loaded: LoadedConfig,
    plugins: PluginManager,
    streams: StandardStreams,
    ready_file: Path | None,
    stopping: asyncio.Event,
) -> None:
    """Run a broker until it is to stop, which it may be before it has started.

    One whose node id the cluster has retired is stopped, and the next one asks for another.
    """
    while not await _served(loaded, plugins, streams, ready_file, stopping):
        _log.info("starting again with another node id")


async def _served(
    loaded: LoadedConfig,
    plugins: PluginManager,
    streams: StandardStreams,
    ready_file: Path | None,
    stopping: asyncio.Event,
) -> bool:
    """Whether the broker ended because it was to stop, and not because it has no node id any more."""
    async with AsyncExitStack() as stack:
        node = Node(loaded, plugins, SystemClock())
        node.metrics.log_lines_lost.watch(streams.lost)
        stack.push_async_callback(node.stop)
        admin = _bound_admin(node, plugins, streams)
        if admin is not None:
            stack.push_async_callback(admin.stop)
        try:
            if not await _started(node, admin, stopping):
                _log.info("stopping before the broker was ready")
                return True
        except NodeIdRetiredError:
            if not loaded.broker.asks_for_node_id:
                raise
            return False
        listeners = {name: f"{endpoint.host}:{endpoint.port}" for name, endpoint in node.endpoints.items()}
        if admin is not None:
            admin.start()
        _log.info(
            "ready for clients",
            records_validation=loaded.broker.record_validation.value,
            version=version("diskless"),
            cluster=node.cluster_id,
            listeners=listeners,
            data=str(loaded.broker.data_dir.absolute()),
            open_files_limit=open_files.limit(),
        )
        if ready_file is not None:
            address = admin.url if admin is not None else None
            _write_ready_file(ready_file, {"pid": os.getpid(), "listeners": listeners, "admin": address})
        memory.freeze_garbage_collector()
        is_retired = await _until_retired(node, stopping)
        _log.info("stopping")
        return not is_retired


async def _until_retired(node: Node, stopping: asyncio.Event) -> bool:
    """Wait until the broker's node id is retired, or the broker is to stop; whether it is the former."""
    retired = asyncio.create_task(node.until_node_id_is_retired(), name="node id")
    stop = asyncio.create_task(stopping.wait(), name="wait for a signal")
    try:
        await asyncio.wait([retired, stop], return_when=asyncio.FIRST_COMPLETED)
        return retired.done() and not stop.done()
    finally:
        for task in (retired, stop):
            task.cancel()


async def _started(node: Node, admin: AdminServer | None, stopping: asyncio.Event) -> bool:
    """Start it, unless it is to stop before it has started: then the start is broken off.

    While a start takes long, as when a store is away, the HTTP interface says that the process lives.
    """
    starting = asyncio.create_task(node.start(), name="start")
    stop = asyncio.create_task(stopping.wait(), name="wait for a signal")
    try:
        ended, _ = await asyncio.wait([starting, stop], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not ended:
            if admin is not None:
                admin.start()
            await asyncio.wait([starting, stop], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            return True
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    finally:
        stop.cancel()


def _bound_admin(node: Node, plugins: PluginManager, streams: StandardStreams) -> AdminServer | None:
    listener = node.config.admin_listener
    if listener is None:
        return None
    from diskless_core.admin.http import AdminServer
    from diskless_core.admin.sources import Sources

    sources = Sources(
        metrics=node.metrics,
        speaker=node.speaker,
        readiness=node.not_ready,
        warnings=streams.problems,
        cluster=node.cluster_view,
        plugins=plugins,
        selected=node.selected_plugins,
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
    node.advertise_http(server.port)
    return server


def _write_ready_file(path: Path, content: dict[str, object]) -> None:
    """Whoever waits for the file finds it whole."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)
