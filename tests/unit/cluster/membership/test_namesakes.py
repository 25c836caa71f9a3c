"""A second process with the node id of the controller, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.cluster.membership import namesake
from diskless_core.cluster.membership.member import MembershipRefusedError
from diskless_core.cluster.membership.operations import Duplicate
from diskless_core.cluster.membership.registrar import Registrar
from diskless_core.cluster.tables import CLUSTER, CLUSTER_ID
from diskless_core.coordinator.calls import PeerCalls
from tests.support import membership
from tests.support.membership import SESSION_S, MemberProcess, MemberWorld, in_world, until


async def second_process(world: MemberWorld, node_id: int, port: int | None = None) -> MemberProcess:
    """It follows the cluster shard, and nobody takes it for the one that leads."""
    made = world.process(node_id, port=port, log_node_id=77)
    await made.boot()
    return made


async def look(process: MemberProcess) -> None:
    name = membership.CLUSTER_ID
    process.shard.state._committed[CLUSTER][CLUSTER_ID] = name  # these worlds have no cluster id in their log
    calls = PeerCalls(process, timeout_ms=1000, transfer_s=0)
    await namesake.require_none(process.membership._member._spec, None, process.shard, calls)


def test_the_controller_refuses_a_second_process_with_its_own_node_id_and_is_named() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        second = await second_process(world, 1)
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(MembershipRefusedError, match=f"node id 1 is that of the broker at h:{one.port + 1000}"):
            await look(second)
        assert asyncio.get_running_loop().time() - began_s < 2 * namesake.PAUSE_S
        await asyncio.sleep(2 * SESSION_S)
        assert two.live == [1, 2]
        assert two.peers.address_of(1) == one.peers.address_of(1)

    in_world(scene)


def test_the_controller_itself_registers_anew_with_its_own_node_id() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        await one.kill()
        again = world.process(1)
        await again.join()
        assert again.live == [1]
        assert again.membership.epoch == 2

    in_world(scene)


def test_a_restart_does_not_wait_for_the_process_before_it() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two = await world.join(1, 2)
        await until(lambda: one.live == [1, 2])
        await one.kill()
        for port in (one.port, None):  # where it listened before, and at a new address
            again = await second_process(world, 1, port)
            began_s = asyncio.get_running_loop().time()
            await look(again)
            assert asyncio.get_running_loop().time() - began_s < 0.1
            await again.kill()
        assert two.peers.address_of(1) is not None

    in_world(scene)


def test_a_controller_that_stands_still_is_not_waited_for_long() -> None:
    async def scene(world: MemberWorld) -> None:
        one, _ = await world.join(1, 2)
        second = await second_process(world, 1)
        one.is_paused = True
        began_s = asyncio.get_running_loop().time()
        await look(second)
        assert asyncio.get_running_loop().time() - began_s <= namesake.PATIENCE_S + 0.1

    in_world(scene)


def test_a_process_that_only_has_the_address_is_no_namesake() -> None:
    async def scene(world: MemberWorld) -> None:
        one, two, three = await world.join(1, 2, 3)
        await until(lambda: one.live == [1, 2, 3])
        await three.kill()
        one.port, three_port = three.port, one.port  # the controller has the address now that is registered for 3
        second = await second_process(world, 3)
        await look(second)
        one.port = three_port
        assert two.known == [1, 2, 3]

    in_world(scene)


def test_what_the_controller_says_of_its_own_id_is_that_it_lives() -> None:
    async def scene(world: MemberWorld) -> None:
        [one] = await world.join(1)
        registrar: Registrar = one.membership.registrar
        stranger = world.process(1).membership._member._spec
        answer = await registrar.register(stranger)
        assert isinstance(answer, Duplicate)
        assert answer.silent_s == 0.0

    in_world(scene)
