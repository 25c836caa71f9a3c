"""Several brokers, shards and clients live through one history for each seed, and keep every promise in all of them."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys

import pytest

from tests.architecture.source_files import ROOT
from tests.simulation import world
from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.processes import ProcessLoop
from tests.simulation.run import simulate
from tests.simulation.scenario import draw

CHUNKS = 16
KNOWN_SEEDS = 4
UNSEEN_SEEDS = 3
"""In each chunk. A history takes half a second of a processor or more; `make simulate` lives through thousands."""

MUTANT_WORLDS = 120
TAIL_LINES = 40


def assert_kept(seed: int) -> None:
    outcome = simulate(seed)
    if outcome.violation is not None:
        tail = "\n".join(outcome.lines[-TAIL_LINES:])
        pytest.fail(f"{outcome.violation}\nLive through it again: python -m tests.simulation --seed {seed}\n{tail}")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_is_kept_in_known_histories(chunk: int) -> None:
    for seed in range(chunk * KNOWN_SEEDS, (chunk + 1) * KNOWN_SEEDS):
        assert_kept(seed)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_is_kept_in_histories_that_nobody_has_seen(chunk: int) -> None:
    base = (random.randrange(10**6, 10**9) * CHUNKS + chunk) * UNSEEN_SEEDS
    for seed in range(base, base + UNSEEN_SEEDS):
        assert_kept(seed)


def test_much_happens_in_a_few_histories() -> None:
    outcomes = [simulate(seed) for seed in range(20)]
    assert sum(outcome.acknowledged for outcome in outcomes) > 100
    assert sum(outcome.read for outcome in outcomes) > 100
    assert sum(outcome.committed_offsets for outcome in outcomes) > 10
    assert sum(outcome.segments for outcome in outcomes) > 20
    assert sum(outcome.deleted_objects for outcome in outcomes) > 20
    assert sum(outcome.terms for outcome in outcomes) > 12


def test_a_history_that_does_not_end_is_ended_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "LONGEST_S", 10.0)
    assert "never comes to an end" in (simulate(0).violation or "")


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    histories = {_digests_of_a_process(hash_seed) for hash_seed in ("1", "2")}
    assert len(histories) == 1


def _digests_of_a_process(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "0..8", "--digest"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_rule_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = (seed for seed in itertools.count() if mutation.can_show_in(draw(seed)))
    known = [] if mutation.showed_in is None else [mutation.showed_in]
    mutation.apply(monkeypatch)
    seeds = itertools.chain(known, itertools.islice(worlds, MUTANT_WORLDS))
    histories = (simulate(seed, mutation.steps) for seed in seeds)
    assert any(history.violation is not None for history in histories)


def test_a_process_stops_between_two_of_its_steps_and_goes_on_there() -> None:
    with asyncio.Runner(loop_factory=ProcessLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, ProcessLoop)
        process = loop.process("p")
        steps: list[float] = []

        async def step() -> None:
            while True:
                steps.append(loop.time())
                await asyncio.sleep(0.001)

        async def main() -> None:
            stepping = process.start(step())
            await process.freeze_after(5, within_s=1.0)
            assert loop.time() < 0.1
            taken = len(steps)
            await asyncio.sleep(1)
            assert len(steps) == taken > 0
            process.thaw()
            await asyncio.sleep(0.1)
            assert len(steps) > taken
            stepping.cancel()

        runner.run(main())
