# ruff: noqa: SLF001 - PySpark has no other way to tell what of it there is
"""The Spark that this process works with: the one that is there, or one that is started for the time being.

PySpark is imported when a session is asked for, and no call to it blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from diskless_spark.submit import GATEWAY_VARIABLE

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

CANCEL_AGAIN_S = 0.5

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How to start a Spark. `conf` are further `spark.*` properties, which may be secret."""

    master: str
    app_name: str
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)


def is_local(master: str) -> bool:
    """Whether all of a Spark with this master runs on this machine."""
    return master.startswith("local")


@asynccontextmanager
async def spark_context(options: SessionOptions) -> AsyncIterator[SparkContext]:
    """The Spark of this process for as long as it is needed, without what only SQL needs: that takes seconds more.

    One that is there is used as it is: under `spark-submit`, in a notebook. Else one is started with these options,
    shared with whoever asks meanwhile, and stopped by the last of them.

    Raises:
        Exception: what Spark says when it cannot start.
    """
    taking = asyncio.ensure_future(in_thread(lambda: _shared.take(options), "spark-start"))
    try:
        context = await asyncio.shield(taking)
    except asyncio.CancelledError:
        await asyncio.wait([taking])
        if not taking.cancelled() and taking.exception() is None:
            await in_thread(_shared.give_back, "spark-stop")
        raise
    try:
        yield context
    finally:
        await asyncio.shield(in_thread(_shared.give_back, "spark-stop"))


@asynccontextmanager
async def spark_session(options: SessionOptions) -> AsyncIterator[SparkSession]:
    """A session of `spark_context`, for SQL."""
    from pyspark.sql import SparkSession

    async with spark_context(options):
        yield await in_thread(SparkSession.builder.getOrCreate, "spark-session")


async def cancelled(context: SparkContext, group: str, running: asyncio.Future[Any]) -> None:
    """End the jobs of a group that `running` waits for. It returns when they have ended, whatever became of them."""
    while not running.done():  # they may not have begun when they are cancelled
        await in_thread(partial(context.cancelJobGroup, group), "spark-cancel")
        await asyncio.wait([running], timeout=CANCEL_AGAIN_S)
    if not running.cancelled():
        running.exception()  # nobody else asks for it


async def in_thread(work: Callable[[], T], name: str) -> T:
    """Run a call that blocks on a thread of its own: Spark keeps the group and the description of a job per thread.

    The call goes on when this is cancelled.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(answer)


class _SharedContext:
    """Counts the users of a Spark that was started here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = False
        self._users = 0

    def take(self, options: SessionOptions) -> SparkContext:
        from pyspark import SparkContext

        with self._lock:
            if SparkContext._active_spark_context is None:  # of any thread
                if _jvm_has_ended():
                    _forget_jvm()
                _start(options)
                self._started = True
            self._users += 1
            return SparkContext.getOrCreate()

    def give_back(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._started:
                self._started = False
                _stop()


_shared = _SharedContext()


def _stop() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if not _jvm_has_ended():
        started = SparkSession._instantiatedSession or SparkContext._active_spark_context  # a session stops both
        try:
            if started is not None:
                started.stop()
        except Exception:
            _log.warning("the JVM of Spark does not stop, and is killed", exc_info=True)
        else:
            return
    _forget_jvm()


def _jvm_has_ended() -> bool:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget_jvm() -> None:
    """Have the next Spark started in a JVM of its own: PySpark would ask for ever the one that it once began.

    One that spark-submit began ends with this program.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
        process.stdin.close()
    if context is not None:
        context._jsc = None  # it is gone, and need not be asked to stop
        context.stop()
    if gateway is not None:
        gateway.shutdown()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    SparkContext._gateway = SparkContext._jvm = None


def _start(options: SessionOptions) -> None:
    from pyspark import SparkConf, SparkContext

    # whoever runs the job shows how far it is
    conf = SparkConf().setAppName(options.app_name).set("spark.ui.showConsoleProgress", "false")
    if GATEWAY_VARIABLE not in os.environ:
        conf.setMaster(options.master)
        if is_local(options.master):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in options.conf.items():
        conf.set(name, value)
    SparkContext.getOrCreate(conf)
