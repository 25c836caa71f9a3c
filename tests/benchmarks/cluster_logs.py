"""Measures each coordinator log by itself: what an append takes, and how many commands a shard on it takes."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from confluent_kafka import Producer

from diskless_bucket_log.bucket_log import BucketLog
from diskless_bucket_log.config import BucketLogSettings
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.protocol.record_batch import RecordData, build
from diskless_core.shards import DISKLESS
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.factory import make_store
from tests.benchmarks.apart import Add
from tests.benchmarks.coordinator_load import (
    PARTITIONS_A_TOPIC,
    PARTITIONS_WRITTEN,
    as_in_a_broker,
    in_flight,
    local_log,
    log_context,
    requests,
    serve,
    shard_on,
    topic_id,
)
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.kafka_log import kafka_log, log_properties
from tests.support.maven import fetch_jars
from tests.support.relay import Relay
from tests.support.versitygw import ACCESS_KEY, REGION, SECRET_KEY, VersityGateway
from tests.support.waiting import wait_until

ENTRY_BYTES = 200
APPENDS = 1_000
"""Of each log, one at a time, after a tenth of it that warms up."""

APPENDS_S = 10.0
"""No log is given longer, once it has made `FEWEST_APPENDS`."""

FEWEST_APPENDS = 20
COMMANDS = 10_000
COMMANDS_UNDER_WAY = 64
COMMANDS_S = 10.0
ANSWER_DELAY_S = 0.020
BUCKET = "bench"

_APPENDED = DISKLESS.shard(1)


class Contender(NamedTuple):
    """A log, and what its backend does in the same place without Diskless, in seconds each time."""

    name: str
    log: CoordinatorLog
    baseline: tuple[str, Sequence[float]] | None


def measure(add: Add, folder: Path) -> None:
    """All logs after one another, in folders below this one."""
    as_in_a_broker()
    for name, life in _LIVES.items():
        place = folder / name
        place.mkdir(parents=True)
        with life(place) as contenders:
            for contender in contenders:
                with tempfile.TemporaryDirectory(dir=place) as store:
                    asyncio.run(_measure(add, contender, Path(store)))


async def _measure(add: Add, contender: Contender, folder: Path) -> None:
    log = contender.log
    await log.start()
    try:
        appends = await _timed_appends(log)
        ratio = ""
        if contender.baseline is not None:
            what, baseline = contender.baseline
            add(f"baseline: {what}", _spread(baseline))
            ratio = f" ({statistics.median(appends) / statistics.median(baseline):.2f} of it)"
        add(f"append, {contender.name}", f"{_spread(appends)}{ratio}")
        add(f"commands, {contender.name}", f"{await _commands_s(log, folder):,.0f}/s")
    finally:
        await log.stop()


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p50, p99 = (ordered[int(len(ordered) * share)] * 1000 for share in (0.50, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


async def _timed_appends(log: CoordinatorLog) -> list[float]:
    """Seconds of each of some appends, one after the other."""
    entry = _entry()

    async def append() -> None:
        await log.append(_APPENDED, [entry])

    await _timed(append, APPENDS // 10, APPENDS_S / 10)
    return await _timed(append, APPENDS, APPENDS_S)


async def _timed(do: Callable[[], Awaitable[None]], times: int, at_most_s: float) -> list[float]:
    began = time.perf_counter()
    taken: list[float] = []
    while len(taken) < times:
        before = time.perf_counter()
        if before - began > at_most_s and len(taken) >= FEWEST_APPENDS:
            break
        await do()
        taken.append(time.perf_counter() - before)
    return taken


def _timed_here(do: Callable[[], object]) -> list[float]:
    """The same of what blocks."""

    async def call() -> None:
        do()

    return asyncio.run(_timed(call, APPENDS, APPENDS_S))


async def _commands_s(log: CoordinatorLog, folder: Path) -> float:
    """CommitFiles of one batch a second, of a shard that leads on this log."""
    async with shard_on(log, folder) as shard:
        for number in range(PARTITIONS_WRITTEN // PARTITIONS_A_TOPIC):
            identity = uuid.UUID(bytes=topic_id(number))
            await shard.create_partitions(identity, f"topic-{number}", range(PARTITIONS_A_TOPIC))
        frames = requests(COMMANDS, 1, adjacent=False, producers=0)
        began = time.perf_counter()
        done = 0

        async def commit(frame: bytes) -> None:
            nonlocal done
            if time.perf_counter() - began < COMMANDS_S:
                await serve(shard, frame)
                done += 1

        await in_flight(COMMANDS_UNDER_WAY, frames, commit)
        return done / (time.perf_counter() - began)


def _entry() -> bytes:
    return build([RecordData(key=None, value=os.urandom(ENTRY_BYTES))], timestamp_ms=int(time.time() * 1000))


# --- the logs ----------------------------------------------------------------------------------------------------


@contextmanager
def _local(folder: Path) -> Iterator[list[Contender]]:
    baseline = ("appending to a file, with fsync", _timed_here(_FileAppender(folder / "baseline").append))
    yield [Contender("`local`", local_log(log_context(folder)), baseline)]


@contextmanager
def _kafka(folder: Path) -> Iterator[list[Contender]]:
    kafka = ApacheKafka(fetch_jars("kafka"), folder / "kafka")
    try:
        kafka.start()
        log = kafka_log(log_properties(kafka.bootstrap, "bench"), folder)
        baseline = ("delivery report of one record, acks=all, no linger", _delivery_reports(kafka.bootstrap))
        yield [Contender("`kafka`, one broker", log, baseline)]
    finally:
        kafka.end()


@contextmanager
def _bucket_of_files(folder: Path) -> Iterator[list[Contender]]:
    baseline = (
        "a file with fsync, linked to its name, and fsync of the folder",
        _timed_here(_FileLinker(folder / "baseline").put),
    )
    log = _bucket_log(folder, {"url": (folder / "objects").as_uri()})
    yield [Contender("`bucket`, files", log, baseline)]


@contextmanager
def _bucket_in_moto(folder: Path) -> Iterator[list[Contender]]:
    with ExitStack() as stack:
        [port] = free_ports(1)
        server = stack.enter_context(_moto(port, folder / "moto.log"))
        wait_until(lambda: _creates_bucket(server), "a bucket in moto")
        relay = stack.enter_context(Relay(port, answer_delay_s=ANSWER_DELAY_S))
        relay.pass_on()
        name = f"`bucket`, S3 (moto, {ANSWER_DELAY_S * 1000:.0f} ms added)"
        settings = _s3(relay.url, "moto", "key", "secret")
        baseline = ("one conditional put in moto with this delay", _conditional_puts(settings))
        yield [
            Contender(name, _bucket_log(folder, settings, linger_ms=0), baseline),
            Contender(f"{name}, linger by default", _bucket_log(folder, settings), None),
        ]


@contextmanager
def _bucket_in_versitygw(folder: Path) -> Iterator[list[Contender]]:
    server = VersityGateway(folder, BUCKET)
    try:
        server.start()
        settings = _s3(server.url, "versitygw", ACCESS_KEY, SECRET_KEY)
        baseline = ("one conditional put in versitygw", _conditional_puts(settings))
        yield [Contender("`bucket`, S3 (versitygw)", _bucket_log(folder, settings, linger_ms=0), baseline)]
    finally:
        server.end()


_LIVES = {
    "local": _local,
    "kafka": _kafka,
    "files": _bucket_of_files,
    "moto": _bucket_in_moto,
    "versitygw": _bucket_in_versitygw,
}


def _bucket_log(folder: Path, objects: Mapping[str, str], **settings: int) -> CoordinatorLog:
    context = log_context(folder)
    prefix = f"log-{uuid.uuid4().hex[:8]}"
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return BucketLog(
        replace(context, object_store=lambda: make_store(context, FsspecSettings.model_validate(objects))),
        BucketLogSettings.model_validate({"prefix": prefix, **dotted}),
    )


def _s3(endpoint: str, prefix: str, key: str, secret: str) -> dict[str, str]:
    return {
        "url": f"s3://{BUCKET}/{prefix}",
        "endpoint.url": endpoint,
        "region": REGION,
        "key": key,
        "secret": secret,
    }


# --- backends without Diskless -----------------------------------------------------------------------------------


@contextmanager
def _moto(port: int, log: Path) -> Iterator[str]:
    """Its URL. It runs in a process of its own: in this one it would take the interpreter from what is measured."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _creates_bucket(endpoint: str) -> bool:
    with closing(_s3_client(_s3(endpoint, "", "key", "secret"))) as client:
        try:
            client.create_bucket(Bucket=BUCKET)
        except BotoCoreError:
            return False
        return True


def _s3_client(settings: Mapping[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=settings["endpoint.url"],
        region_name=settings["region"],
        aws_access_key_id=settings["key"],
        aws_secret_access_key=settings["secret"],
        config=Config(retries={"total_max_attempts": 1}),
    )


def _conditional_puts(settings: Mapping[str, str]) -> list[float]:
    """What the bucket log asks for, of a plain client: new objects that must not be there yet."""
    entry, numbers = _entry(), count()
    with closing(_s3_client(settings)) as client:
        return _timed_here(
            lambda: client.put_object(Bucket=BUCKET, Key=f"baseline/{next(numbers)}", Body=entry, IfNoneMatch="*")
        )


class _FileAppender:
    """Appends entries to one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = _entry()

    def append(self) -> None:
        with self._path.open("ab") as file:
            file.write(self._data)
            file.flush()
            os.fsync(file.fileno())


class _FileLinker:
    """Puts entries as files of their own, each of which is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._data = _entry()
        self._number = 0

    def put(self) -> None:
        self._number += 1
        temporary = self._folder / "temporary"
        with temporary.open("wb") as file:
            file.write(self._data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, self._folder / str(self._number))
        temporary.unlink()
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _delivery_reports(bootstrap: str) -> list[float]:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    topic, value = f"baseline-{uuid.uuid4().hex[:8]}", os.urandom(ENTRY_BYTES)

    def report() -> None:
        producer.produce(topic, value)
        if producer.flush(60):
            raise RuntimeError("a record was not acknowledged")

    report()  # makes the topic
    return _timed_here(report)
