"""Every backend that ships, at what a broker asks of it: `make bench ONLY=backends` writes docs/backends.md.

What is measured is what `diskless plugins bench` measures, of each backend in a process of its own. Servers come from
the helpers of the tests; a backend whose server cannot be had is a row that says so.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import structlog
import uvloop

from diskless_core.broker.memory import collect_garbage_less_often, keep_freed_memory
from diskless_core.clock import SystemClock
from diskless_core.config.errors import ConfigError
from diskless_core.config.load import load_config
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import COORDINATOR_LOG, GATEWAY_PLACEMENT, OFFSET_ASSIGNMENT
from diskless_core.trial.bench.comparison import Comparison, compare
from diskless_core.trial.trying import TrialImpossibleError
from docs_site.backends import BACKENDS, Backend, Figures, Run
from tests.benchmarks import machine
from tests.benchmarks.meter import Meter
from tests.support.apache_kafka import ApacheKafka
from tests.support.maven import JarsUnavailableError, fetch_jars
from tests.support.relay import Relay
from tests.support.versitygw import ACCESS_KEY, REGION, SECRET_KEY, VersityGateway

ANSWER_DELAY_S = 0.020
BUCKET = "bench"
SECONDS: Mapping[str, float] = {COORDINATOR_LOG.name: 12.0, OFFSET_ASSIGNMENT.name: 2.0, GATEWAY_PLACEMENT.name: 2.0}
"""How long backends of a noun are measured, where that is not `USUAL_SECONDS`. Appends to a distant bucket are few."""

USUAL_SECONDS = 6.0
LIMIT_S = 240.0
"""After which a backend has not answered, beyond the seconds for which it is measured."""

UNAVAILABLE = (AssertionError, ImportError, JarsUnavailableError, OSError, RuntimeError, subprocess.SubprocessError)
"""What is raised where a server, or what starts it, is not there."""

_CONTRIB = Path(__file__).parents[2] / "contrib"

Add = Callable[[str, str], None]
Properties = Mapping[str, str]


class Group(NamedTuple):
    """Rows that share a server: what starts it in a folder, and their properties, by key, of what that gives."""

    serve: Callable[[Path], AbstractContextManager[Any]]
    rows: Mapping[str, Callable[[Any], Properties]]


def measure(add: Add, seconds: Mapping[str, float] = SECONDS, usual_seconds: float = USUAL_SECONDS) -> Run:
    """All rows, in less than six minutes."""
    figures: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="diskless-bench-", ignore_cleanup_errors=True) as name:
        for number, group in enumerate(GROUPS):
            for key, found in measure_group(group, Path(name) / f"{number}", seconds, usual_seconds):
                figures[key] = found
                add(key, found.missing or _summary(found))
    return Run(machine=machine.describe(), date=f"{datetime.now(UTC):%Y-%m-%d}", figures=figures)


def _summary(found: Figures) -> str:
    measures = ", ".join(f"{name} {value:,.3g}" for name, value in found.measures.items() if "CPU" not in name)
    return f"{measures}; {found.memory_mib:,.0f} MiB"


def measure_group(
    group: Group, folder: Path, seconds: Mapping[str, float], usual_seconds: float
) -> Iterator[tuple[str, Figures]]:
    """Rows with their keys, one after the other. Those that have no server, or lose it, say why."""
    by_key = {one.key: one for one in BACKENDS}
    left = dict(group.rows)
    folder.mkdir()
    try:
        with group.serve(folder) as server:
            for key, properties_of in group.rows.items():
                backend = by_key[key]
                properties = {"log.dirs": str(folder / "log"), backend.noun: backend.name, **properties_of(server)}
                yield key, _apart(backend, properties, seconds.get(backend.noun, usual_seconds))
                del left[key]
    except UNAVAILABLE as error:
        reason = _last_line(error)
        for key in left:
            yield key, _missing(reason)


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def _missing(reason: str) -> Figures:
    return Figures(measures={}, memory_mib=0.0, missing=reason)


def _apart(backend: Backend, properties: Properties, seconds: float) -> Figures:
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return process.submit(_measured, backend.noun, backend.name, dict(properties), seconds).result()
    except UNAVAILABLE as error:  # the process's end is a RuntimeError
        return _missing(_last_line(error))


# --- in a process of its own -------------------------------------------------------------------------------------


def _measured(noun: str, name: str, properties: Properties, seconds: float) -> Figures:
    """What a broker's process would see of the backend. Its plugin, and the client library, are not imported before."""
    keep_freed_memory()
    collect_garbage_less_often()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    meter = Meter(os.getpid())
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here on
    began_mib = meter.rss_mib()
    try:
        found = uvloop.run(_compared(noun, name, properties, seconds))
    except TimeoutError:
        return _missing(f"no answer within {seconds + LIMIT_S:.0f} s")
    except ConfigError as error:
        return _missing("; ".join(map(str, error.problems)))
    except TrialImpossibleError as error:
        return _missing(str(error))
    [measures] = found.sides.values()
    return Figures(
        measures={one.name: float(f"{one.value:.4g}") for one in measures},
        memory_mib=round(meter.peak_rss_mib() - began_mib, 1),
    )


async def _compared(noun: str, name: str, properties: Properties, seconds: float) -> Comparison:
    plugins = PluginManager.discover({})
    loaded = load_config(None, [f"{key}={value}" for key, value in properties.items()], {}, plugins)
    async with asyncio.timeout(seconds + LIMIT_S):
        return await compare([(name, loaded)], noun, plugins, SystemClock(), seconds)


# --- servers -----------------------------------------------------------------------------------------------------


class S3(NamedTuple):
    """Addresses of one S3 server."""

    near: str
    far: str
    """Its answers come `ANSWER_DELAY_S` later."""

    def properties(self, plugin: str, endpoint: str) -> Properties:
        """Those that keep a plugin's objects there."""
        return {
            f"{plugin}.url": f"s3://{BUCKET}/{plugin.partition('.')[0]}",
            f"{plugin}.endpoint.url": endpoint,
            f"{plugin}.region": REGION,
            f"{plugin}.key": ACCESS_KEY,
            f"{plugin}.secret": SECRET_KEY,
        }

    def bucket_log(self, **settings: int) -> Properties:
        """Those of a bucket log with the far server."""
        own = {f"coordinator_log.bucket.{name.replace('_', '.')}": str(value) for name, value in settings.items()}
        return {**self.properties("wal_object_store.fsspec", self.far), **own}


def _nothing(_: Path) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def _s3(folder: Path) -> Iterator[S3]:
    server = VersityGateway(folder, BUCKET)
    try:
        server.start()
        with Relay(server.port, answer_delay_s=ANSWER_DELAY_S) as relay:
            relay.pass_on()
            yield S3(near=server.url, far=relay.url)
    finally:
        server.end()


@contextmanager
def _kafka(folder: Path) -> Iterator[str]:
    kafka = ApacheKafka(fetch_jars("kafka"), folder / "kafka")
    try:
        yield kafka.start().bootstrap
    finally:
        kafka.end()


@contextmanager
def _postgres(_: Path) -> Iterator[Properties]:
    server = _helper("diskless-postgres", "postgres_server").Server()
    with server:
        yield {name: str(value) for name, value in server.parameters("postgres").items()}


@contextmanager
def _azurite(folder: Path) -> Iterator[Properties]:
    from azure.storage.blob import ContainerClient

    helper = _helper("diskless-azure", "azurite")
    with helper.Azurite(folder) as server:
        credential = {"account_name": helper.ACCOUNT, "account_key": helper.KEY}
        with ContainerClient(server.account_url, BUCKET, credential=credential) as container:
            container.create_container()
        yield {"account.url": server.account_url, "container": BUCKET, "account.key": helper.KEY}


def _helper(distribution: str, name: str) -> ModuleType:
    """A module of a distribution's own tests."""
    path = _CONTRIB / distribution / "tests" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{distribution.replace('-', '_')}_{name}", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _below(plugin: str, settings: Properties) -> Properties:
    return {f"{plugin}.{name}": value for name, value in settings.items()}


def _default(_: object) -> Properties:
    return {}


GROUPS = (
    Group(
        _nothing,
        {
            "coordinator_log.local": _default,
            "coordinator_log.bucket (files)": _default,
            "coordinator_store.sqlite": _default,
            "coordinator_store.rocksdb": _default,
            "wal_object_store.fsspec (files)": _default,
            "offset_assignment.sequential": _default,
            "gateway_placement.kip1164": _default,
            "gateway_placement.rendezvous": _default,
            "remote_storage.fsspec (files)": _default,
            "remote_log_metadata.coordinator": _default,
        },
    ),
    Group(
        _s3,
        {
            "coordinator_log.bucket (S3, 20 ms added, no linger)": lambda s3: s3.bucket_log(linger_ms=0),
            "coordinator_log.bucket (S3, 20 ms added, default linger)": lambda s3: s3.bucket_log(),
            **{
                key: lambda s3, plugin=plugin: s3.properties(plugin, s3.near)
                for key, plugin in (
                    ("wal_object_store.fsspec (S3)", "wal_object_store.fsspec"),
                    ("wal_object_store.obstore", "wal_object_store.obstore"),
                    ("remote_storage.fsspec (S3)", "remote_storage.fsspec"),
                )
            },
        },
    ),
    Group(
        _kafka,
        {
            "coordinator_log.kafka": lambda bootstrap: {
                "coordinator_log.kafka.bootstrap.servers": bootstrap,
                "coordinator_log.kafka.topic.replication.factor": "1",
                "coordinator_log.kafka.allow.unsafe": "true",
            },
            "remote_log_metadata.kafka": lambda bootstrap: {
                "remote_log_metadata.kafka.bootstrap.servers": bootstrap,
                "remote_log_metadata.kafka.topic.replication.factor": "1",
                "remote_log_metadata.kafka.topic.min.isr": "1",
            },
        },
    ),
    Group(_postgres, {"coordinator_log.postgres": lambda login: _below("coordinator_log.postgres", login)}),
    Group(
        _azurite,
        {
            plugin: lambda place, plugin=plugin: _below(plugin, place)
            for plugin in ("wal_object_store.azure", "remote_storage.azure")
        },
    ),
)
"""All rows that are measured."""
