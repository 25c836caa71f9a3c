"""Brokers compare their clocks by heartbeats, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.cluster.membership import wire
from diskless_core.cluster.membership.clocks import (
    MAX_ROUND_TRIP_S,
    Compared,
    ControllersClock,
    compare,
    controllers_clock,
    differences,
)
from diskless_core.cluster.membership.heartbeats import Decision
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tests.support.guarantees import guarantee
from tests.support.membership import HEARTBEAT_S, MemberProcess, MemberWorld, in_world, until
from tests.unit.cluster.membership.test_retired_members import a_day_later, member_with_given_id

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
SOME_BEATS_S = 6 * HEARTBEAT_S


def held(*processes: MemberProcess) -> list[bool]:
    """Whether each of them forgets nothing now."""
    return [one.shard.clock_watch.is_held for one in processes]


def exported(process: MemberProcess, name: str) -> float | None:
    return process.metrics.registry.get_sample_value(name)


# --- the rule ---------------------------------------------------------------------------------------------------------


def test_the_controller_answers_with_the_clocks_that_are_furthest_apart() -> None:
    told = controllers_clock(NOW_MS, {2: 5, 3: -70, 4: 40, 5: 0})
    assert told == ControllersClock(now_ms=NOW_MS, ahead_ms={3: -70, 4: 40})
    assert controllers_clock(NOW_MS, {}) == ControllersClock(now_ms=NOW_MS, ahead_ms={})


def test_a_broker_sees_every_clock_in_terms_of_its_own() -> None:
    told = ControllersClock(now_ms=NOW_MS, ahead_ms={3: -70, 2: 40})
    assert differences(2, Compared(controller=1, ahead_ms=40), told) == {1: -40, 3: -110}
    assert differences(1, Compared(controller=1, ahead_ms=0), told) == {3: -70, 2: 40}
    assert differences(1, Compared(controller=1, ahead_ms=0), controllers_clock(NOW_MS, {})) == {}


def test_the_answer_was_made_halfway_between_request_and_answer() -> None:
    told = controllers_clock(NOW_MS, {})
    found = compare(1, told, received_ms=NOW_MS + 300, round_trip_s=0.2, before=None)
    assert found == Compared(controller=1, ahead_ms=200)


def test_an_answer_that_took_long_compares_nothing() -> None:
    told, before = controllers_clock(NOW_MS, {}), Compared(controller=1, ahead_ms=7)
    late_s = MAX_ROUND_TRIP_S + 0.1
    assert compare(1, told, received_ms=NOW_MS, round_trip_s=late_s, before=before) == before
    assert compare(2, told, received_ms=NOW_MS, round_trip_s=late_s, before=before) is None


@pytest.mark.parametrize("ahead_ms", [{}, {3: -70, 4: 40}, {3: 5}, {3: -5, 4: -2}])
def test_what_a_controller_says_comes_over_the_wire(ahead_ms: dict[int, int]) -> None:
    told = controllers_clock(NOW_MS, ahead_ms)
    response = wire.heartbeat_response(Decision(is_caught_up=True), is_fenced=False, clock=told)
    assert wire.clock_of(BrokerHeartbeatResponse.decode(response.encode(version=0), version=0)) == told


def test_a_controller_of_an_earlier_version_says_nothing_and_a_broker_of_one_neither() -> None:
    assert wire.clock_of(wire.heartbeat_response(ErrorCode.NOT_CONTROLLER, is_fenced=True)) is None
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=1, current_metadata_offset=1, want_fence=False, want_shut_down=False
    )
    assert wire.beat_of(request, {}).compared is None


# --- brokers ----------------------------------------------------------------------------------------------------------


@guarantee(
    "Deletion and retention",
    "While the clock of a live broker is off by more than ten seconds, no broker forgets anything because time has "
    "passed. Two seconds are nothing.",
)
@pytest.mark.parametrize("wrong", [1, 2, 3])
@pytest.mark.parametrize("off_ms", [DAY_MS, -DAY_MS])
def test_every_broker_learns_that_the_clock_of_a_live_one_is_off(wrong: int, off_ms: int) -> None:
    async def scene(world: MemberWorld) -> None:
        brokers = await world.join(1, 2, 3)
        await asyncio.sleep(SOME_BEATS_S)
        assert held(*brokers) == [False, False, False]
        brokers[wrong - 1]._clock.skew_ms += 2_000
        await asyncio.sleep(SOME_BEATS_S)
        assert held(*brokers) == [False, False, False]
        brokers[wrong - 1]._clock.skew_ms += off_ms
        await until(lambda: all(held(*brokers)), 4 * HEARTBEAT_S)
        difference_s = {exported(one, "diskless_clock_difference_seconds") for one in brokers}
        assert {round(abs(one or 0) / 86_400, 1) for one in difference_s} == {1.0}
        assert {exported(one, "diskless_clock_disagrees") for one in brokers} == {1.0}
        brokers[wrong - 1]._clock.skew_ms = 0
        await until(lambda: not any(held(*brokers)), 4 * HEARTBEAT_S)
        assert {exported(one, "diskless_clock_disagrees") for one in brokers} == {0.0}

    in_world(scene)


def test_a_broker_that_is_gone_holds_up_nobody_and_what_it_may_have_written_stays_in_doubt() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        three._clock.skew_ms = -DAY_MS
        await until(lambda: all(held(one, two)))
        written_ms = three._clock.now_ms()
        await three.kill()
        await until(lambda: not any(held(one, two)))
        for other in (one, two):
            assert other.shard.clock_watch.passed().since(written_ms) < 60_000

    in_world(scene)


def test_the_clocks_are_compared_with_the_next_controller_too() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await asyncio.sleep(SOME_BEATS_S)
        await one.kill()
        world.lead(3)
        await until(lambda: three.live == [2, 3])
        two._clock.skew_ms = DAY_MS
        await until(lambda: all(held(two, three)))

    in_world(scene)


def test_a_cluster_in_which_nothing_was_written_for_a_day_is_vouched_for_by_its_clocks() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        yesterday_ms = one._clock.now_ms() - DAY_MS
        for other in (one, two):
            other.shard.clock_watch.saw(yesterday_ms)
        await asyncio.sleep(SOME_BEATS_S)
        assert all(other.shard.clock_watch.passed().since(yesterday_ms) >= DAY_MS for other in (one, two))

    in_world(scene)


def test_a_controller_whose_clock_is_ahead_retires_no_id_before_a_day_has_passed() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        three = await member_with_given_id(world, one)
        await three.kill()
        await until(lambda: one.live == [1, 2])
        one._clock.skew_ms += 2 * DAY_MS
        await asyncio.sleep(SOME_BEATS_S)
        assert one.known == [1, 2, 3]
        two._clock.skew_ms += 2 * DAY_MS
        await until(lambda: not any(held(one, two)))
        await asyncio.sleep(SOME_BEATS_S)
        assert one.known == [1, 2, 3], "both clocks have jumped, and no time has passed"
        a_day_later(world)
        await until(lambda: one.known == [1, 2])

    in_world(scene)
