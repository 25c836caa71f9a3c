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
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_GATEWAY_OF_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"


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
async def spark_session(options: SessionOptions) -> AsyncIterator[SparkSession]:
    """The session of this process for as long as it is needed.

    One that is there is used as it is: under `spark-submit`, in a notebook. Else one is started with these options,
    shared with whoever asks meanwhile, and stopped by the last of them.

    Raises:
        Exception: what Spark says when it cannot start.
    """
    taking = asyncio.ensure_future(in_thread(lambda: _shared.take(options), "spark-start"))
    try:
        session = await asyncio.shield(taking)
    except asyncio.CancelledError:
        await asyncio.wait([taking])
        if not taking.cancelled() and taking.exception() is None:
            await in_thread(_shared.give_back, "spark-stop")
        raise
    try:
        yield session
    finally:
        await asyncio.shield(in_thread(_shared.give_back, "spark-stop"))


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


class _SharedSession:
    """Counts the users of a session that was started here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._users = 0

    def take(self, options: SessionOptions) -> SparkSession:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        with self._lock:
            if self._session is None and SparkContext._active_spark_context is None:  # noqa: SLF001 - of any thread
                self._session = _start(options)
            self._users += 1
            return self._session or SparkSession.builder.getOrCreate()

    def give_back(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._session is not None:
                self._session.stop()
                self._session = None


_shared = _SharedSession()


def _start(options: SessionOptions) -> SparkSession:
    from pyspark.sql import SparkSession

    # whoever runs the job shows how far it is
    builder = SparkSession.builder.appName(options.app_name).config("spark.ui.showConsoleProgress", "false")
    if _GATEWAY_OF_SPARK_SUBMIT not in os.environ:
        builder = builder.master(options.master)
        if is_local(options.master):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in options.conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
