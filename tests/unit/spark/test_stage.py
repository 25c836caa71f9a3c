"""A Spark job of a compaction keeps nothing in the driver when it has ended. Without Spark."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.accumulators import Accumulator, _accumulatorRegistry

from diskless_spark.executor import TaskResult
from diskless_spark.stage import run_stage
from tests.support.waiting import wait_until


class Context:
    """What `run_stage` needs of a context. Its jobs have one task, whose result arrives, and then they do `end`."""

    master = "local[2]"

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def setJobGroup(self, *_: Any, **__: Any) -> None:  # noqa: N802
        pass

    def accumulator(self, value: Any, param: Any) -> Any:
        self.made: Any = Accumulator(-99, value, param)
        return self.made

    def parallelize(self, *_: Any) -> Any:
        return self

    def foreachPartition(self, _: Any) -> None:  # noqa: N802
        registry: Any = _accumulatorRegistry
        registry[self.made.aid] += [TaskResult(number=7)]
        self._end()


class Plans:
    """What a round holds."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def note(self, result: TaskResult) -> None:
        self.ended.append(result.number)


def nothing() -> None:
    pass


def give_up() -> None:
    raise ValueError("Spark gave up")


@pytest.mark.parametrize("end", [nothing, give_up])
def test_what_wants_to_know_of_ended_tasks_is_not_kept(end: Callable[[], None]) -> None:
    context: Any = Context(end)
    plans = Plans()
    gone = weakref.ref(plans)
    try:
        asyncio.run(run_stage(context, [], group="g", description="d", ended=plans.note))
    except ValueError:
        assert end is give_up
    assert plans.ended == [7]
    assert context.made.aid not in _accumulatorRegistry
    del plans, context

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    wait_until(is_gone, "the end of the thread that waited for Spark, and of all that it knew")
