"""Several brokers over TCP: what clients are told of them, and who may be one."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest

from diskless_core.broker.errors import StartError
from diskless_core.cluster.membership import sessions
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DescribeClusterRequest, UnregisterBrokerRequest
from tests.support.cluster import BROKERS, LIMIT_S, Cluster, in_thread, until
from tests.support.requests import create_topic, metadata_request

GROUP = 0


def live_brokers(wire):
    """Node id, address and rack of each, and the controller, by Metadata."""
    answer = wire.call(metadata_request("t"), 12)
    brokers = {one.node_id: (one.host, one.port, one.rack) for one in answer.brokers}
    return brokers, answer.controller_id, [one.leader_id for one in answer.topics[0].partitions]


def described_brokers(wire, *, with_fenced):
    request = DescribeClusterRequest(include_fenced_brokers=with_fenced)
    answer = wire.call(request, 2)
    return {one.broker_id: one.is_fenced for one in answer.brokers}, answer.controller_id


async def test_clients_are_told_of_all_live_brokers_by_the_listener_that_they_use(tmp_path: Path):
    async with Cluster(tmp_path, {0: 2}) as cluster:
        expected = {
            node_id: (endpoint.host, endpoint.port, f"rack-{node_id}")
            for node_id, node in cluster.nodes.items()
            for endpoint in [node.endpoints["PLAINTEXT"]]
        }

        def look() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two, cluster.connect(2, BROKERS) as peer:
                create_topic(one, "t")
                told = live_brokers(one)
                assert told in [(expected, 1, [node_id]) for node_id in expected]
                assert live_brokers(two) == told, "whoever is asked chooses the same leader for a client"
                assert live_brokers(peer)[0][1][1] == cluster.nodes[1].endpoints[BROKERS].port
                assert described_brokers(two, with_fenced=False) == ({1: False, 2: False}, 1)
                [found] = two.call(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["g"]), 4).coordinators
                assert (found.error_code, found.node_id, found.port) == (0, 1, expected[1][1])

        await until(lambda: all(len(node._parts.membership.brokers.live()) == 2 for node in cluster.nodes.values()))
        await in_thread(look)


async def test_the_health_of_a_broker_that_nobody_reaches_says_so(tmp_path: Path):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        advertised = f"{BROKERS}://127.0.0.1:{held.getsockname()[1]}"
        async with Cluster(tmp_path, {0: 1}, node_ids=(1,)) as cluster:
            starting = asyncio.create_task(cluster.start(2, properties={"advertised.listeners": advertised}))
            try:
                await until(lambda: 2 in cluster.begun and len(cluster.begun[2].not_ready()) > 1)
                [state, reason] = cluster.begun[2].not_ready()
                assert state == "the broker is starting or stopping"
                assert f"Set {BROKERS} in its advertised.listeners to an address" in reason
                assert not starting.done()
            finally:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)


async def test_a_broker_that_has_stopped_is_fenced_and_can_be_forgotten_and_may_come_back(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:
        await cluster.stop(2)

        def forget() -> None:
            with cluster.connect(1) as one:
                assert described_brokers(one, with_fenced=False) == ({1: False}, 1)
                assert described_brokers(one, with_fenced=True) == ({1: False, 2: True}, 1)
                assert one.call(UnregisterBrokerRequest(broker_id=1), 0).error_code == ErrorCode.INVALID_REQUEST
                assert one.call(UnregisterBrokerRequest(broker_id=2), 0).error_code == ErrorCode.NONE
                assert described_brokers(one, with_fenced=True) == ({1: False}, 1)

        def find_again() -> None:
            with cluster.connect(1) as one:
                assert described_brokers(one, with_fenced=False) == ({1: False, 2: False}, 1)

        await in_thread(forget)
        await cluster.start(2)
        await in_thread(find_again)


async def test_any_broker_says_why_one_is_fenced_and_passes_a_request_to_forget_it_on_to_the_controller(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}, node_ids=(1, 2, 3)) as cluster:
        await cluster.stop(3)

        def look() -> None:
            for node_id in (1, 2):
                with cluster.connect(node_id) as wire:
                    answer = wire.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
                assert [one.fenced_reason for one in answer.brokers] == [None, None, "it was shut down"]

        def forget() -> None:
            with cluster.connect(2) as two:
                assert two.call(UnregisterBrokerRequest(broker_id=3), 0).error_code == ErrorCode.NONE

        await in_thread(look)
        await in_thread(forget)
        await until(lambda: cluster.nodes[2]._parts.membership.brokers.get(3) is None)


async def test_a_second_process_with_a_node_id_does_not_start_and_says_where_the_first_is(tmp_path: Path):
    quick = {"broker.heartbeat.interval.ms": "200"}
    async with Cluster(tmp_path, {0: 1}, properties=quick) as cluster:
        first = cluster.nodes[2].endpoints["PLAINTEXT"]
        with pytest.raises(StartError, match=f"the node id 2 is that of the broker at 127.0.0.1:{first.port}"):
            await cluster.start(2, folder="second")
        assert cluster.nodes[1]._parts.membership.brokers.get(2).is_live


async def test_a_broker_whose_connections_are_reset_stays_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "RESET_S", LIMIT_S)
    async with Cluster(tmp_path, {0: 1}) as cluster:
        brokers = cluster.nodes[1]._parts.membership.brokers
        before = brokers.get(2)
        heartbeats = cluster.answered(1, "BrokerHeartbeat")
        assert cluster.break_connections(1) > 0
        await until(lambda: cluster.answered(1, "BrokerHeartbeat") > heartbeats)
        assert brokers.get(2) == before


async def test_brokers_on_a_shared_log_need_a_listener_for_each_other(tmp_path: Path):
    cluster = Cluster(tmp_path, {0: 1}, node_ids=(1,), properties={"inter.broker.listener.name": ""})
    with pytest.raises(StartError, match=r"set inter\.broker\.listener\.name"):
        await cluster.start(1)
