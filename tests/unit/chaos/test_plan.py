"""What a chaos run does follows from its seed."""

from __future__ import annotations

import pytest

from tests.chaos.plan import QUIET_AT_END_S, Fault, plan


def test_a_seed_gives_the_same_plan_again_and_another_one_another() -> None:
    assert plan(7, 600, list(Fault)) == plan(7, 600, list(Fault))
    assert plan(7, 600, list(Fault)) != plan(8, 600, list(Fault))


@pytest.mark.parametrize("seed", range(20))
def test_all_is_over_before_the_end_and_every_fault_hits_whom_it_may(seed: int) -> None:
    planned = plan(seed, 900, list(Fault))
    assert len(planned) > 15
    for one in planned:
        assert one.at_s + one.lasts_s <= 900 - QUIET_AT_END_S
        assert one.role in one.fault.roles
    assert [one.at_s for one in planned] == sorted(one.at_s for one in planned)


def test_only_what_is_allowed_is_drawn() -> None:
    assert {one.fault for one in plan(1, 300, [Fault.KILL, Fault.PAUSE])} == {Fault.KILL, Fault.PAUSE}


def test_every_fault_comes_in_some_run() -> None:
    assert {one.fault for seed in range(20) for one in plan(seed, 900, list(Fault))} == set(Fault)
