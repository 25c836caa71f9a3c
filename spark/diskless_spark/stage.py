"""One Spark job of one stage: its tasks, and their results as they end, also of a job that fails later."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam, _accumulatorRegistry

from diskless_core.plugin.segment_compaction import BackendSources
from diskless_spark.executor import ComparisonTask, Task, TaskResult, TaskRunner, import_all
from diskless_spark.session import cancelled, in_thread

if TYPE_CHECKING:
    from pyspark import SparkContext

_FAILURES_OF_LOCAL = re.compile(r"local\[[^,\]]+(?:,\s*(\d+))?\]|local")


class _Results(AccumulatorParam[list[TaskResult]]):
    """Spark adds the results of a task once, when an attempt has ended well. The driver hands them on."""

    def __init__(self, arrived: Callable[[list[TaskResult]], None] | None) -> None:
        self._arrived = arrived

    def __reduce__(self) -> tuple[type[_Results], tuple[None]]:
        return _Results, (None,)

    def zero(self, value: list[TaskResult]) -> list[TaskResult]:
        del value
        return []

    def addInPlace(self, value1: list[TaskResult], value2: list[TaskResult]) -> list[TaskResult]:  # noqa: N802
        if self._arrived is None:
            return value1 + value2
        self._arrived(value2)
        return []


async def run_stage(
    context: SparkContext,
    tasks: Sequence[Task | ComparisonTask],
    *,
    group: str,
    description: str,
    ended: Callable[[TaskResult], None],
) -> None:
    """Run tasks, and return when all have ended.

    Args:
        group: of its own; a cancellation ends what is in it.
        description: for Spark's own UI.
        ended: called on the event loop for each task that has ended well, before this returns.

    Raises:
        Exception: what Spark says of a task that failed too often. Others may have ended well.
    """
    loop = asyncio.get_running_loop()

    def arrived(results: list[TaskResult]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever wanted to know
            for result in results:
                loop.call_soon_threadsafe(ended, result)

    def run() -> None:
        context.setJobGroup(group, description, interruptOnCancel=True)
        results = context.accumulator(list[TaskResult](), _Results(arrived))
        try:
            runner = TaskRunner(results=results, attempts=attempts_of_a_task(context))
            pickled = [pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL) for task in tasks]
            context.parallelize(pickled, len(pickled)).foreachPartition(runner)
        finally:
            # PySpark would keep it for ever, and with it all that `ended` knows. What comes later, it passes over.
            _accumulatorRegistry.pop(results.aid, None)

    running = asyncio.ensure_future(in_thread(run, f"spark-{group}"))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.shield(cancelled(context, group, running))
        raise


async def warm_up(context: SparkContext, backends: BackendSources) -> None:
    """Have Python started on the executors, with all that tasks import: that takes them seconds, once.

    Raises:
        Exception: what Spark says when it cannot be done.
    """

    def run() -> None:
        if context.applicationId in _warm:
            return
        context.setJobGroup(f"warm-up-{context.applicationId}", "Python starts on the executors")
        pickled = pickle.dumps(backends, protocol=pickle.HIGHEST_PROTOCOL)
        slots = context.defaultParallelism
        context.parallelize([pickled] * slots, slots).foreachPartition(import_all)
        _warm.add(context.applicationId)

    await in_thread(run, "spark-warm-up")


_warm: set[str] = set()
"""Applications whose executors are warm."""


def attempts_of_a_task(context: SparkContext) -> int:
    """How often Spark tries a task of this application."""
    local = _FAILURES_OF_LOCAL.fullmatch(context.master or "")
    if local is not None:
        return int(local.group(1) or 1)
    return int(context.getConf().get("spark.task.maxFailures", "4") or 4)
