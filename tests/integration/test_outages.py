"""Buckets that are away while a broker starts, or hang while it stops: what the process does, and says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from tests.support.batches import batch_of
from tests.support.broker import BrokerProcess
from tests.support.moto_s3 import moto_s3
from tests.support.relay import Relay
from tests.support.requests import append, create_topic, produce_request
from tests.support.waiting import wait_until

KEY_ID, SECRET = "test-key", "hush-hush"
WAITS = "the start waits for the WAL object store"
LONG_MS = 600_000
"""How long a request may take that hangs: far longer than anything may wait for it."""

SHORT_S = 60.0
"""What nothing takes that does not wait for a request that hangs, however slow the machine is."""


@pytest.fixture
def buckets() -> Iterator[int]:
    """The port of S3 as moto plays it, with a bucket."""
    with moto_s3() as port:
        keys = {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET}
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", **keys)
        client.create_bucket(Bucket="bucket")
        client.close()
        yield port


@pytest.fixture
def wal(buckets: int) -> Iterator[Relay]:
    """The way to the bucket of WAL objects."""
    with Relay(buckets) as relay:
        yield relay


@pytest.fixture
def segments(buckets: int) -> Iterator[Relay]:
    """The way to the bucket of segments."""
    with Relay(buckets) as relay:
        yield relay


@pytest.fixture
def broker(tmp_path: Path, wal: Relay, segments: Relay) -> Iterator[BrokerProcess]:
    """One that has not been started."""
    properties = {
        "diskless.shutdown.timeout.ms": "300",
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": "100",
    }
    for noun, relay in (("wal_object_store", wal), ("remote_storage", segments)):
        settings = {
            "url": f"s3://bucket/{noun}",
            "endpoint.url": relay.url,
            "region": "us-east-1",
            "key": KEY_ID,
            "secret": SECRET,
            "request.timeout.ms": str(LONG_MS),
        }
        properties |= {f"{noun}.fsspec.{name}": value for name, value in settings.items()}
    broker = BrokerProcess(tmp_path / "broker", properties)
    yield broker
    broker.end()


def test_a_start_waits_for_its_bucket_and_a_stop_for_nothing_that_hangs(
    broker: BrokerProcess, wal: Relay, segments: Relay, topic: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(broker.start)
        wait_until(lambda: broker.log.exists() and WAITS in broker.log_text(), "the start waits")
        os.kill(broker.pid, signal.SIGTERM)
        with pytest.raises(AssertionError, match="ended with code 0 instead of starting"):
            starting.result()
        assert "stopping before the broker was ready" in broker.log_text()

        told = len(broker.log_text())
        starting = pool.submit(broker.start)
        wait_until(lambda: WAITS in broker.log_text(told), "the start waits again")
        segments.pass_on()
        wal.pass_on()
        starting.result()

    with broker.connect() as wire:
        create_topic(wire, topic, remote_storage_enable="true", local_retention_bytes="1")
        segments.hang()
        append(wire, topic, batch_of(b"acknowledged"))
        segments.wait_until_held()  # it is copied into a segment
        wal.hang()
        wire.send(produce_request(topic, {0: batch_of(b"never acknowledged")}), 9)
        wal.wait_until_held()
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < SHORT_S
    assert "what could not be stored in time is given up" in broker.log_text(told)
