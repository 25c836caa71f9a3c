"""A broker is unfenced only once the controller has reached it where it says that it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from diskless_core.cluster.membership import reachability
from diskless_core.protocol.messages import BrokerHeartbeatResponse
from tests.support.membership import (
    BROKERS,
    CLUSTER_ID,
    DELAY_S,
    HEARTBEAT_S,
    SESSION_S,
    MemberProcess,
    MemberWorld,
    begun,
    in_world,
    until,
)

NOBODY = 19
"""A port that nobody listens at."""

FENCED = "a broker stays fenced: it cannot be reached"
KEPT_FENCED = "the controller keeps this broker fenced"


def reasons(logs: list[dict[str, str]], event: str) -> list[str]:
    return [log["reason"] for log in logs if log["event"] == event]


async def until_told(process: MemberProcess) -> str:
    """Wait until a broker has been told why it stays fenced."""
    await until(lambda: process.membership.unreachable_because is not None)
    reason = process.membership.unreachable_because
    assert reason is not None
    return reason


async def unreachable(world: MemberWorld) -> tuple[MemberProcess, asyncio.Task[None]]:
    """Broker 2, which is not where it says and knows so by now, and its attempt to join."""
    process = world.process(2, advertised=NOBODY)
    joining = begun(process.join())
    await until_told(process)
    return process, joining


@pytest.mark.parametrize(
    ("advertised", "problem"),
    [
        (lambda _: NOBODY, f"nobody listens at h:{NOBODY}"),
        (lambda one: one.port, "that is broker 1"),
    ],
    ids=["closed port", "another broker's"],
)
def test_a_broker_that_is_not_where_it_says_stays_fenced_and_is_told_why_once(
    advertised: Callable[[MemberProcess], int], problem: str
) -> None:
    async def scene(world: MemberWorld) -> None:
        one, three = await world.join(1, 3)
        await until(lambda: one.live == [1, 3])
        with capture_logs() as logs:
            two = world.process(2, advertised=advertised(one))
            joining = begun(two.join())
            reason = await until_told(two)
            await asyncio.sleep(5 * SESSION_S)
        assert not joining.done()
        assert one.live == three.live == [1, 3]
        assert [broker.node_id for broker in one.membership.registrar.live()] == [1, 3]
        place = f"h:{advertised(one)}, which it advertises for {BROKERS}"
        assert reason.startswith(f"the controller does not reach it at {place}: ")
        assert problem in reason
        assert "advertised.listeners" in reason
        assert reasons(logs, FENCED) == reasons(logs, KEPT_FENCED) == [reason]
        assert set(reasons(logs, "the broker waits to be unfenced")) == {reason}
        joining.cancel()

    in_world(scene)


def test_a_defect_in_the_question_is_told_and_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OverflowError("a defect")

    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        with monkeypatch.context() as patch:
            patch.setattr(reachability.Reachability, "_mismatch", broken)
            two = world.process(2)
            joining = begun(two.join())
            assert "OverflowError('a defect')" in await until_told(two)
        await joining
        assert one.live == [1, 2]

    in_world(scene)


def test_a_broker_that_comes_back_with_the_right_address_is_live() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        wrong, joining = await unreachable(world)
        joining.cancel()
        await wrong.kill()
        right = world.process(2)
        await right.join()
        await until(lambda: one.live == right.live == [1, 2])

    in_world(scene)


def test_a_broker_behind_a_firewall_is_asked_now_and_then_one_question_at_a_time_until_it_answers() -> None:
    async def scene(world: MemberWorld) -> None:
        one, _ = await world.join(1, 3)
        await until(lambda: one.live == [1, 3])
        two = world.process(2)
        world.dropping.add(two.port)
        joining = begun(two.join())
        assert "no connection to" in await until_told(two)
        written = one.shard.next_offset
        await asyncio.sleep(60.0)
        limit_s = SESSION_S / 2
        assert 60 / (limit_s + 1.5 * 5) <= world.asked.count(two.port) <= 60 / limit_s + 1
        assert one.live == [1, 3]
        assert one.shard.next_offset == written
        world.dropping.clear()
        await joining
        await until(lambda: one.live == [1, 2, 3])
        asked = len(world.asked)
        await asyncio.sleep(2 * SESSION_S)
        assert len(world.asked) == asked

    in_world(scene)


def test_a_broker_that_is_not_reached_delays_no_heartbeat_of_others() -> None:
    async def scene(world: MemberWorld) -> None:
        one, three = await world.join(1, 3)
        two = world.process(2)
        world.dropping.add(two.port)
        joining = begun(two.join())
        took_s: list[float] = []
        heartbeat = one.membership.service.heartbeat

        async def timed(request, link=None) -> BrokerHeartbeatResponse:
            began_s = asyncio.get_running_loop().time()
            response = await heartbeat(request, link)
            if request.broker_id == 3:
                took_s.append(asyncio.get_running_loop().time() - began_s)
            return response

        one.membership.service.heartbeat = timed
        await until_told(two)
        await asyncio.sleep(2 * SESSION_S)
        assert three.live == [1, 3]
        assert len(took_s) > SESSION_S / HEARTBEAT_S
        assert max(took_s) == 0
        joining.cancel()

    in_world(scene)


def test_a_controller_asks_neither_itself_nor_brokers_that_are_live() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        assert world.asked == []
        two, three = await world.join(2, 3)
        await until(lambda: two.live == three.live == [1, 2, 3])
        world.asked.clear()
        world.dropping = {one.port, two.port, three.port}
        seen = set[tuple[int, ...]]()
        one.shard.on_commit(lambda _: seen.add(tuple(one.live)))
        for leader in (2, 3, 1):
            world.lead(leader)
            await asyncio.sleep(2 * SESSION_S)
        assert seen <= {(1, 2, 3)}
        assert one.live == two.live == three.live == [1, 2, 3]
        assert world.asked == []

    in_world(scene)


def test_a_new_controller_finds_out_itself_who_is_reached() -> None:
    async def scene(world: MemberWorld) -> None:
        await world.join(1, 2)
        three = world.process(3)
        world.dropping.add(three.port)
        joining = begun(three.join())
        await until_told(three)
        world.dropping.clear()
        world.lead(2)
        await asyncio.wait_for(joining, HEARTBEAT_S)

    in_world(scene)


def test_a_broker_that_was_fenced_is_asked_anew_before_it_is_unfenced() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        two.is_paused = True
        await until(lambda: one.live == [1])
        world.dropping.add(two.port)
        world.asked.clear()
        two.is_paused = False
        await until_told(two)
        assert one.live == [1]
        world.dropping.clear()
        await until(lambda: one.live == [1, 2])
        assert set(world.asked) == {two.port}

    in_world(scene)


def test_a_start_waits_for_the_answer_and_not_for_the_next_heartbeat() -> None:
    async def scene(world: MemberWorld) -> None:
        await world.join(1)
        two = world.process(2)
        await two.boot()
        began_s = asyncio.get_running_loop().time()
        await two.membership.start()
        # There and back to register, for the first heartbeat, and to be unfenced. The question is asked beside that.
        assert asyncio.get_running_loop().time() - began_s <= 6.5 * DELAY_S
        assert world.asked == [two.port]

    in_world(scene)


def test_a_broker_that_reads_the_log_for_long_is_asked_again_when_it_is_ready() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        two = world.process(2)
        await two.boot()
        caught_up = asyncio.Event()
        two.groups.until_caught_up = caught_up.wait
        starting = begun(two.membership.start())
        await asyncio.sleep(SESSION_S)
        assert world.asked == [two.port]
        world.dropping.add(two.port)
        caught_up.set()
        await until_told(two)
        assert one.live == [1]
        world.dropping.clear()
        await starting

    in_world(scene)


def test_a_broker_that_nobody_reaches_does_not_become_the_controller_as_long_as_another_one_may() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        two, joining = await unreachable(world)
        world.let_candidates_lead()
        await one.kill()
        await asyncio.sleep(SESSION_S / 2)
        assert not two.shard.leading
        three = world.process(3)
        await three.join()
        assert three.shard.leading
        assert 3 in three.live
        assert 2 not in three.live
        joining.cancel()

    in_world(scene)


def test_a_broker_that_nobody_reaches_becomes_the_controller_when_nobody_else_does() -> None:
    """The controller that told it may have been wrong."""

    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        two, joining = await unreachable(world)
        world.let_candidates_lead()
        await one.kill()
        assert await until(lambda: two.shard.leading) > SESSION_S - 1.0
        await joining
        await until(lambda: two.live == [2])

    in_world(scene)


def test_brokers_that_start_together_do_not_wait_for_each_other() -> None:
    async def scene(world: MemberWorld) -> None:
        world.let_candidates_lead()
        began_s = asyncio.get_running_loop().time()
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: one.live == two.live == three.live == [1, 2, 3])
        assert asyncio.get_running_loop().time() - began_s < 2.0

    in_world(scene)


def test_attempts_of_many_brokers_are_not_all_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        others = [world.process(node_id) for node_id in range(2, 8)]
        under_way, most = 0, 0
        ask_once = one.ask_once

        async def counted(*arguments):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                return await ask_once(*arguments)
            finally:
                under_way -= 1

        one.membership._reachability._ask_once = counted
        await asyncio.gather(*(other.join() for other in others))
        await until(lambda: one.live == list(range(1, 8)))
        assert most == 2

    monkeypatch.setattr(reachability, "MAX_UNDER_WAY", 2)
    in_world(scene)


def test_a_broker_of_another_cluster_is_not_taken_for_the_one_that_registered() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        two = world.process(2)
        two.membership.service._cluster_id = "another"
        joining = begun(two.join())
        assert "that is a broker of the cluster another" in await until_told(two)
        two.membership.service._cluster_id = CLUSTER_ID
        await joining
        assert one.membership.brokers.live()

    in_world(scene)
