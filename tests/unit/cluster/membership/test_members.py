"""Several brokers as members of one cluster, on virtual time: who is live, and how soon that is known."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from diskless_core.cluster.membership import registrar
from diskless_core.cluster.membership.fenced import STARTING
from diskless_core.cluster.membership.member import MembershipRefusedError
from diskless_core.cluster.membership.sessions import RESET_S
from diskless_core.cluster.operations import Refusal
from diskless_core.coordinator.errors import NotControllerError
from diskless_core.coordinator.peers import PeerAddress
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import UnregisterBrokerRequest
from diskless_core.shards import CLUSTER_SHARD
from tests.support.membership import HEARTBEAT_S, SESSION_S, TIMES, MemberWorld, begun, in_world, until


def test_brokers_find_each_other_by_their_registrations() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        for process in (one, two, three):
            await until(lambda process=process: process.live == [1, 2, 3])
        assert one.peers.node_ids() == [2, 3]
        assert one.peers.address_of(2) == PeerAddress("h", two.port)
        assert [broker.spec.rack for broker in three.membership.brokers.live()] == ["rack-1", "rack-2", "rack-3"]
        assert three.membership.brokers.controller == 1

    in_world(scene)


def test_nothing_is_written_while_nothing_changes() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: two.live == [1, 2])
        written = one.shard.next_offset
        await asyncio.sleep(10 * SESSION_S)
        assert one.live == two.live == [1, 2]
        assert one.shard.next_offset == written

    in_world(scene)


def test_a_broker_that_falls_silent_is_fenced_after_its_session_and_unfenced_when_it_is_back() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        two.is_paused = True
        took_s = await until(lambda: one.live == [1])
        assert SESSION_S - HEARTBEAT_S - 0.1 <= took_s <= SESSION_S + 0.1
        two.is_paused = False
        await until(lambda: one.live == [1, 2])
        assert two.membership.brokers.get(2).epoch == one.membership.brokers.get(2).epoch == 2

    in_world(scene)


def test_all_brokers_of_a_zone_that_vanishes_are_fenced_by_one_entry_however_long_an_append_takes() -> None:
    async def scene(world: MemberWorld) -> None:
        one, *others = await world.join(*range(1, 13))
        await until(lambda: len(one.live) == 12)
        world.shared.append_delay_s = lambda: 0.3
        entries = len(world.shared.content(CLUSTER_SHARD))
        for other in others[:6]:
            other.is_paused = True
        await until(lambda: len(one.live) < 12)
        assert one.live == [1, *range(8, 13)]
        assert len(world.shared.content(CLUSTER_SHARD)) == entries + 1

    in_world(scene)


def test_very_many_brokers_are_fenced_by_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: MemberWorld) -> None:
        monkeypatch.setattr(registrar, "BROKERS_IN_ONE_ENTRY", 2)
        one, *others = await world.join(*range(1, 7))
        await until(lambda: len(one.live) == 6)
        entries = len(world.shared.content(CLUSTER_SHARD))
        for other in others:
            other.is_paused = True
        await until(lambda: one.live == [1])
        assert len(world.shared.content(CLUSTER_SHARD)) == entries + 3

    in_world(scene)


def test_a_broker_that_is_killed_is_fenced_as_soon_as_its_connection_is_reset() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        await two.kill()
        assert await until(lambda: one.live == [1]) < RESET_S + 0.1

    in_world(scene)


def test_a_broker_whose_connection_breaks_comes_back_before_it_is_fenced() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: two.live == [1, 2])
        written = one.shard.next_offset
        for _ in range(5):
            world.reset(two)
            await asyncio.sleep(2 * RESET_S)
        assert one.live == [1, 2]
        assert one.shard.next_offset == written

    in_world(scene)


def test_a_restart_after_a_kill_is_quick_and_takes_the_place_of_the_dead_process() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await two.kill()
        again = world.process(2)
        began_s = asyncio.get_running_loop().time()
        await again.join()
        assert asyncio.get_running_loop().time() - began_s < 1.0
        await until(lambda: one.live == [1, 2])
        assert one.peers.address_of(2) == PeerAddress("h", again.port)
        assert one.membership.brokers.get(2).epoch == 3

    in_world(scene)


def test_a_second_process_with_one_node_id_gives_up_and_names_the_first_which_goes_on() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        second = world.process(2, log_node_id=4)
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(MembershipRefusedError, match=f"node id 2 is that of the broker at h:{two.port + 1000}"):
            await second.join()
        assert asyncio.get_running_loop().time() - began_s < 2 * HEARTBEAT_S
        await asyncio.sleep(2 * SESSION_S)
        assert one.live == [1, 2]
        assert one.peers.address_of(2) == PeerAddress("h", two.port)

    in_world(scene)


def test_a_second_process_waits_for_the_end_of_a_first_that_is_silent() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        two.is_paused = True
        second = world.process(2, log_node_id=4)
        joining = begun(second.join())
        await asyncio.sleep(SESSION_S / 2)
        assert not joining.done()
        await joining
        assert one.peers.address_of(2) == PeerAddress("h", second.port)

    in_world(scene)


def test_a_new_controller_grants_every_broker_a_session_but_the_one_that_it_replaced() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: two.live == [1, 2, 3])
        one.is_paused = three.is_paused = True
        world.lead(2)
        took_s = await until(lambda: two.live == [2, 3])
        assert took_s <= TIMES.short_s + 0.1
        rest_s = await until(lambda: two.live == [2])
        assert SESSION_S - 0.1 <= took_s + rest_s <= SESSION_S + 0.1

    in_world(scene)


def test_a_controller_that_was_killed_is_fenced_as_soon_as_another_one_leads() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: two.live == [1, 2])
        await one.kill()
        await asyncio.sleep(5)
        assert two.live == [1, 2]
        world.lead(2)
        assert await until(lambda: two.live == [2]) < RESET_S + 0.2

    in_world(scene)


def test_a_controller_whose_claim_was_not_read_by_its_successor_is_fenced_as_soon() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: two.live == [1, 2])
        two.shard._leader.leadership.claimant = None  # as after a restart with a store that goes beyond the claim
        await one.kill()
        await asyncio.sleep(5)
        world.lead(2)
        assert await until(lambda: two.live == [2]) < RESET_S + 0.2

    in_world(scene)


def test_a_controller_that_is_replaced_and_lives_is_not_fenced() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: two.live == [1, 2, 3])
        seen = set[tuple[int, ...]]()
        two.shard.on_commit(lambda _: seen.add(tuple(two.live)))
        for leader in (2, 3, 1, 3):
            world.lead(leader)
            await asyncio.sleep(2 * SESSION_S)
        assert seen <= {(1, 2, 3)}
        assert one.live == two.live == three.live == [1, 2, 3]

    in_world(scene)


def test_while_nobody_leads_brokers_stay_what_they_are_and_a_new_one_waits() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: two.live == [1, 2])
        world.lead(99)
        three = world.process(3)
        joining = begun(three.join())
        await asyncio.sleep(10 * SESSION_S)
        assert one.live == two.live == [1, 2]
        assert not joining.done()
        world.lead(2)
        await joining
        await until(lambda: one.live == [1, 2, 3])

    in_world(scene)


def test_a_broker_that_leads_nothing_is_let_go_at_once() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        began_s = asyncio.get_running_loop().time()
        await two.membership.leave(5.0)
        assert asyncio.get_running_loop().time() - began_s < 0.1
        assert one.live == [1]

    in_world(scene)


def test_a_broker_that_stops_is_not_fenced_before_its_clients_have_gone_and_nobody_is_sent_to_it_meanwhile() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        has_clients = True
        two.membership.has_clients = lambda: has_clients
        assert not two.membership.is_leaving
        leaving = begun(two.membership.leave(60.0))
        await until(lambda: two.membership.is_leaving)
        await asyncio.sleep(2 * SESSION_S)  # of the world's own time
        assert one.live == [1, 2]
        assert [broker.node_id for broker in one.membership.registrar.live()] == [1]
        has_clients = False
        await leaving
        assert one.live == [1]

    in_world(scene)


def test_a_broker_whose_clients_do_not_go_stops_nevertheless() -> None:
    async def scene(world: MemberWorld) -> None:
        _, two = await world.join(1, 2)
        two.membership.has_clients = lambda: True
        began_s = asyncio.get_running_loop().time()
        await two.membership.leave(1.0)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(1.0)

    in_world(scene)


def test_a_broker_that_leads_a_shard_waits_until_another_one_does() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        world.coordinate_groups(2)
        await until(lambda: two.groups.leading and one.groups.claimed_by == 2)
        leaving = begun(two.membership.leave(60.0))
        await asyncio.sleep(2 * SESSION_S)
        assert not leaving.done()
        assert [broker.node_id for broker in one.membership.registrar.live()] == [1]
        assert one.live == [1, 2]
        world.coordinate_groups(1)
        began_s = asyncio.get_running_loop().time()
        await leaving
        assert one.groups.leading
        assert asyncio.get_running_loop().time() - began_s < 1.0
        assert one.live == [1]

    in_world(scene)


def test_a_controller_that_leaves_is_let_go_when_it_leads_nothing_else() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: two.live == [1, 2])
        leaving = begun(one.membership.leave(60.0))
        await asyncio.sleep(1)
        assert not leaving.done()
        world.coordinate_groups(2)
        await leaving
        await until(lambda: two.live == [2])

    in_world(scene)


def test_a_controller_that_leaves_gives_up_the_cluster_shard_and_waits_for_its_successor() -> None:
    async def scene(world: MemberWorld) -> None:
        world.let_candidates_lead()
        one, two = await world.join(1, 2)
        world.coordinate_groups(2)
        await until(lambda: one.shard.leading and two.live == [1, 2] and one.groups.claimed_by == 2)
        began_s = asyncio.get_running_loop().time()
        await one.membership.leave(60.0)
        assert asyncio.get_running_loop().time() - began_s < 1.0
        assert not one.shard.leading
        assert two.shard.leading
        assert two.live == [2]

    in_world(scene)


def test_a_controller_that_nobody_can_replace_stops_at_its_limit() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        world.coordinate_groups(2)
        await until(lambda: two.live == [1, 2] and one.groups.claimed_by == 2)
        began_s = asyncio.get_running_loop().time()
        with capture_logs() as logs:
            await one.membership.leave(5.0)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(5.0)
        assert "the broker was the controller and stops before another one is known" in [log["event"] for log in logs]

    in_world(scene)


def test_a_controller_that_is_killed_is_suspected_at_once_by_all_others() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: two.live == three.live == [1, 2, 3])
        await asyncio.sleep(HEARTBEAT_S * 0.6)
        await one.kill()
        assert await until(lambda: len(world.shared.suspicions) == 2) < RESET_S
        assert sorted(world.shared.suspicions) == [(CLUSTER_SHARD, 1, 2), (CLUSTER_SHARD, 1, 3)]
        world.lead(2)
        await until(lambda: two.live == three.live == [2, 3])
        await asyncio.sleep(SESSION_S)
        assert len(world.shared.suspicions) == 2

    in_world(scene)


def test_a_controller_that_was_silent_for_a_session_is_fenced_as_soon_as_it_is_replaced() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: two.live == three.live == [1, 2, 3])
        one.is_paused = True
        await asyncio.sleep(SESSION_S)
        world.lead(2)
        assert await until(lambda: two.live == [2, 3]) <= RESET_S + 0.1
        await asyncio.sleep(SESSION_S)
        assert two.live == [2, 3]

    in_world(scene)


def test_nobody_suspects_a_controller_that_is_silent_or_comes_back() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: two.live == [1, 2])
        for _ in range(3):
            world.reset(one)
            await asyncio.sleep(HEARTBEAT_S)
        one.is_paused = True
        await asyncio.sleep(SESSION_S)
        assert world.shared.suspicions == []

    in_world(scene)


def test_a_broker_that_was_let_go_can_start_again_at_once_though_the_controller_has_changed() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: two.live == [1, 2, 3])
        await three.membership.leave(5.0)
        await three.kill()
        world.lead(2)
        await until(lambda: two.shard.leading)
        again = world.process(3)
        began_s = asyncio.get_running_loop().time()
        await again.join()
        assert asyncio.get_running_loop().time() - began_s < 1.0
        assert one.peers.address_of(3) == PeerAddress("h", again.port)

    in_world(scene)


def test_a_restart_with_the_same_listeners_is_quick_though_the_controller_has_changed_since_the_kill() -> None:
    async def scene(world: MemberWorld) -> None:
        _, two, three = await world.join(1, 2, 3)
        await until(lambda: two.live == [1, 2, 3])
        await three.kill()
        world.lead(2)
        await until(lambda: two.shard.leading)
        again = world.process(3, port=three.port)
        began_s = asyncio.get_running_loop().time()
        await again.join()
        assert asyncio.get_running_loop().time() - began_s < 1.0

    in_world(scene)


def test_a_second_process_with_the_same_listeners_gives_up_while_the_first_is_heard() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        second = world.process(2, port=two.port, log_node_id=4)
        with pytest.raises(MembershipRefusedError, match="node id 2 is that of the broker at"):
            await second.join()
        assert one.live == [1, 2]

    in_world(scene)


def test_a_refused_registration_is_logged_once_however_often_it_is_tried() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        two.is_paused = True
        second = world.process(2, log_node_id=4)
        with capture_logs() as logs:
            await second.join()
        assert [log["event"] for log in logs].count("a broker may not register") == 1

    in_world(scene)


def test_a_broker_that_is_not_let_go_stops_at_its_limit() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        world.coordinate_groups(2)
        await until(lambda: one.groups.claimed_by == 2)
        began_s = asyncio.get_running_loop().time()
        await two.membership.leave(5.0)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(5.0)

    in_world(scene)


def test_the_last_broker_is_let_go_though_it_leads() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        await one.membership.leave(5.0)
        assert one.live == []

    in_world(scene)


def test_a_broker_with_a_failing_backend_is_fenced_after_a_session_and_comes_back_when_it_works() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        two.membership.bucket_is_ok = lambda: False
        await until(lambda: not one.membership.registrar.live()[1].is_healthy)
        assert await until(lambda: one.live == [1]) >= SESSION_S - HEARTBEAT_S
        await asyncio.sleep(3 * SESSION_S)
        assert one.live == [1]
        two.membership.bucket_is_ok = lambda: True
        await until(lambda: one.live == [1, 2])

    in_world(scene)


def test_where_the_backends_of_all_fail_nobody_is_fenced() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        one.log_is_ok = two.log_is_ok = False
        await asyncio.sleep(5 * SESSION_S)
        assert one.live == [1, 2]

    in_world(scene)


def test_only_a_fenced_broker_can_be_unregistered_and_only_by_the_controller() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: two.live == [1, 2, 3])

        async def unregister(broker_id: int) -> int:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            return (await one.membership.service.unregister(request)).error_code

        assert await unregister(3) == ErrorCode.INVALID_REQUEST
        assert await unregister(7) == ErrorCode.BROKER_ID_NOT_REGISTERED
        await three.kill()
        await until(lambda: one.live == [1, 2])
        at_two = await two.membership.service.unregister(UnregisterBrokerRequest(broker_id=3))
        assert at_two.error_code == ErrorCode.NOT_CONTROLLER
        assert await unregister(3) == ErrorCode.NONE
        await until(lambda: two.known == [1, 2])

    in_world(scene)


def test_a_broker_that_is_unregistered_while_it_is_away_registers_anew() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        two.is_paused = True
        await until(lambda: one.live == [1])
        await one.membership.service.unregister(UnregisterBrokerRequest(broker_id=2))
        two.is_paused = False
        await until(lambda: one.live == [1, 2])
        assert one.membership.brokers.get(2).epoch == 3

    in_world(scene)


def test_the_controller_may_object_to_a_broker() -> None:
    def objection(_command, spec):
        if spec.node_id == 1:
            return None
        return Refusal(code=ErrorCode.UNSUPPORTED_VERSION, message="it is too old")

    async def scene(world: MemberWorld) -> None:
        await world.process(1, objection=objection).join()
        with pytest.raises(MembershipRefusedError, match="it is too old"):
            await world.join(2)

    in_world(scene)


def test_what_the_controller_knows_of_brokers_is_told_when_it_changes() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        told: list[list[int]] = []
        registrar = one.membership.registrar
        registrar.on_change(lambda: told.append([broker.node_id for broker in registrar.live()]))
        [two] = await world.join(2)
        assert told[-1] == [1, 2]
        await two.kill()
        await until(lambda: told[-1] == [1])
        assert [(broker.node_id, broker.rack, broker.is_healthy) for broker in registrar.live()] == [
            (1, "rack-1", True)
        ]

    in_world(scene)


def test_live_and_fenced_brokers_are_counted() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await two.kill()
        await until(lambda: one.live == [1])
        text = one.metrics.exposition().decode()
        assert "diskless_active_brokers 1.0" in text
        assert "diskless_fenced_brokers 1.0" in text

    in_world(scene)


def test_the_controller_says_why_each_broker_is_fenced() -> None:
    async def scene(world: MemberWorld) -> None:
        one, silent, ill, gone = await world.join(1, 2, 3, 4)
        await until(lambda: one.live == [1, 2, 3, 4])
        assert one.membership.registrar.fenced() == {}
        silent.is_paused, ill.log_is_ok = True, False
        await until(lambda: one.live == [1, 4])
        await asyncio.sleep(HEARTBEAT_S)
        await gone.membership.leave(SESSION_S)
        await until(lambda: one.live == [1])
        fenced = one.membership.registrar.fenced()
        assert fenced[2].startswith("it was not heard of for")
        assert fenced[3] == "its coordinator log does not answer it"
        assert fenced[4] == "it was shut down"
        silent.is_paused, ill.log_is_ok = False, True
        await until(lambda: one.live == [1, 2, 3])
        assert list(one.membership.registrar.fenced()) == [4]
        with pytest.raises(NotControllerError):
            silent.membership.registrar.fenced()

    in_world(scene)


def test_the_controller_says_of_a_process_whether_it_ended_or_starts() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await two.kill()
        await until(lambda: one.live == [1])
        assert "its connection ended, and it has not come back" in one.membership.registrar.fenced()[2]
        again = world.process(2)
        await again.boot()
        starting = begun(again.membership._member.run())
        await until(lambda: one.membership.registrar.fenced().get(2) == STARTING)
        starting.cancel()

    in_world(scene)
