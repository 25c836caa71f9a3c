"""A JVM that has died, or does not stop, does not keep the next Spark from being started. Without Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from diskless_spark import session
from diskless_spark.session import SessionOptions, spark_context

OPTIONS = SessionOptions(master="local[1]", app_name="test")
DOES_NOT_STOP = replace(OPTIONS, app_name="does not stop")


class Gateway:
    """To a JVM that is `cat`."""

    def __init__(self) -> None:
        self.proc = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        self.is_shut_down = False

    def shutdown(self) -> None:
        self.is_shut_down = True

    def end(self) -> None:
        self.proc.kill()
        self.proc.wait()


class Context:
    """As PySpark's, of which there is one at a time; stopping it asks the JVM first."""

    def __init__(self, *, stops: bool) -> None:
        self._jsc: object | None = object()
        self._stops = stops

    def stop(self) -> None:
        if self._jsc is not None and not self._stops:
            raise ConnectionRefusedError
        SparkContext._active_spark_context = None


@pytest.fixture
def gateways(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Gateway]]:
    """Those that were begun, in order. PySpark uses the one that it knows."""
    begun: list[Gateway] = []
    known: Any = SparkContext
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        monkeypatch.setattr(known, name, None)
    for name in ("_instantiatedSession", "_activeSession"):
        monkeypatch.setattr(SparkSession, name, None)
    monkeypatch.setattr(known, "getOrCreate", lambda: known._active_spark_context)

    def start(options: SessionOptions) -> None:
        if known._gateway is None:
            known._gateway = Gateway()
            begun.append(known._gateway)
        if known._gateway.proc.poll() is not None:
            raise ConnectionRefusedError
        known._active_spark_context = Context(stops=options.app_name != DOES_NOT_STOP.app_name)

    monkeypatch.setattr(session, "_start", start)
    yield begun
    for gateway in begun:
        gateway.end()
        assert gateway.proc.stdin is not None
        gateway.proc.stdin.close()


async def use(options: SessionOptions = OPTIONS) -> None:
    async with spark_context(options):
        pass


async def test_one_that_stops_is_used_again(gateways: list[Gateway]) -> None:
    await use()
    await use()
    [gateway] = gateways
    assert (gateway.proc.poll(), gateway.is_shut_down) == (None, False)


async def test_one_that_died_while_it_was_used_is_replaced(gateways: list[Gateway]) -> None:
    async with spark_context(DOES_NOT_STOP):
        gateways[0].end()
    assert gateways[0].is_shut_down
    await use()
    assert len(gateways) == 2


async def test_one_that_died_between_two_uses_is_replaced(gateways: list[Gateway]) -> None:
    await use()
    gateways[0].end()
    await use()
    assert gateways[0].is_shut_down
    assert len(gateways) == 2


async def test_one_that_does_not_stop_is_ended_and_replaced(gateways: list[Gateway]) -> None:
    await use(DOES_NOT_STOP)
    assert gateways[0].proc.poll() is not None
    assert gateways[0].is_shut_down
    await use()
    assert len(gateways) == 2
