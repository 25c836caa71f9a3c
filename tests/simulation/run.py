"""Lives through one seed: sets the process up for it, runs the world, and tidies up behind it."""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any
from unittest import mock

import structlog

from diskless_core.broker import followed_shards, shard_watch
from diskless_core.cluster import controller, topic_configs
from diskless_core.cluster import records as cluster_records
from diskless_core.coordinator import entries, following, shard_store, slices, snapshotter
from diskless_core.coordinator.entries import Claim, Entry
from diskless_core.diskless import operations, records
from diskless_core.files import deletion_plan as ending
from diskless_core.groups import records as groups_records
from diskless_core.tiering import planning, removal_rules
from tests.simulation.history import History, Violation
from tests.simulation.processes import ProcessLoop
from tests.simulation.scenario import Scenario, draw
from tests.simulation.world import Outcome, World

HORIZON_AGE_MS = 1_000


def simulate(seed: int, steps: float = 1.0) -> Outcome:
    """Live through one seed. The same seed gives the same history, in any process."""
    with (
        _scaled(draw(seed, steps)),
        _decoded_once(),
        _told_logs() as told,
        _no_garbage_collection(),
        asyncio.Runner(loop_factory=ProcessLoop) as runner,
    ):
        loop = runner.get_loop()
        assert isinstance(loop, ProcessLoop)
        world = World(loop, seed, steps)
        told(world.history)
        try:
            runner.run(world.live())
        except Violation:
            pass
        except Exception as error:  # a deadlock, or a defect of the simulation: the seed has failed either way
            world.history.violated(f"the world came to a halt: {error!r}")
        outcome = world.outcome()
        runner.run(_end_all(loop))
    return outcome


def _of_any_size() -> topic_configs.TopicConfig:
    """The setting segment.bytes without its least value: a world writes less than that."""
    return replace(topic_configs.CONFIGS["segment.bytes"], check=topic_configs.number(1, 2**31 - 1))


async def _end_all(loop: ProcessLoop) -> None:
    """Cancel all that is left, the dead included."""
    loop.thaw_all()
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@contextmanager
def _told_logs() -> Iterator[Callable[[History], None]]:
    """Let what brokers log go into the history."""
    before = structlog.get_config()
    histories: list[History] = []

    def keep(_logger: object, method: str, event: dict[str, Any]) -> Any:
        if histories:
            what = str(event.pop("event"))
            if event.pop("exc_info", False) or method == "exception":
                defect = traceback.format_exc(limit=-3)
                histories[0].violated(f"a defect: {what}: {event} {defect}")
            histories[0].note(f"{method}", f"{what} {event}")
        raise structlog.DropEvent

    structlog.configure(processors=[keep], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False)
    try:
        yield histories.append
    finally:
        structlog.configure(**before)


@contextmanager
def _scaled(scenario: Scenario) -> Iterator[None]:
    """Shorten what the broker waits for by minutes, so that a story of seconds gets past it, at times too early.

    What it looks at every second, and what has no part in the story, is looked at less often.
    """
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(snapshotter, "LOOK_S", 20.0))
        patches.enter_context(mock.patch.object(shard_watch, "LOOK_S", 100.0))
        patches.enter_context(mock.patch.object(followed_shards, "KEPT_SESSIONS", 1))
        patches.enter_context(mock.patch.object(following, "WAIT_MS", 8_000))
        patches.enter_context(mock.patch.object(controller, "GRACE_S", 1.0))
        patches.enter_context(mock.patch.object(controller, "STEADY_S", 0.5))
        patches.enter_context(mock.patch.object(controller, "BALANCE_PAUSE_S", 0.2))
        patches.enter_context(mock.patch.object(ending, "ANSWERS_KEPT_MS", scenario.answers_kept_ms))
        patches.enter_context(mock.patch.object(operations, "HORIZON_AGE_MS", HORIZON_AGE_MS))
        patches.enter_context(mock.patch.object(removal_rules, "GRACE_MS", scenario.copy_grace_ms))
        patches.enter_context(mock.patch.object(planning, "FIRST_PAUSE_MS", 1_000))
        patches.enter_context(mock.patch.object(planning, "MAX_PAUSE_MS", 4_000))
        patches.enter_context(mock.patch.dict(topic_configs.CONFIGS, {"segment.bytes": _of_any_size()}))
        patches.enter_context(mock.patch.object(slices, "SLICE_UNITS", 2))
        patches.enter_context(mock.patch.object(shard_store, "PAGE_ROWS", 30))
        patches.enter_context(mock.patch.object(shard_store, "MAX_UNSTORED_ROWS", 300))
        yield


@contextmanager
def _decoded_once() -> Iterator[None]:
    """Let the replicas share what they decode: it is the same bytes for all of them, and most of a world's time."""
    decode_in_slices = entries.decode_in_slices

    @cache
    def decode_entry(batch: bytes) -> Claim | Entry:
        return slices.at_once(decode_in_slices(batch))

    def entry_in_slices(batch: bytes) -> slices.Slices[Claim | Entry]:
        yield from ()
        return decode_entry(batch)

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(entries, "decode", decode_entry))
        patches.enter_context(mock.patch.object(entries, "decode_in_slices", entry_in_slices))
        for module in (records, cluster_records, groups_records):
            patches.enter_context(mock.patch.object(module, "decode", lru_cache(maxsize=None)(module.decode)))
        yield


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """When garbage is found depends on all that the process did before, and finalizers run then."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
