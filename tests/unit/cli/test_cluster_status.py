"""What `diskless cluster status` makes of what a broker answers."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from diskless_core.cli.client import cluster_status
from diskless_core.cli.client.cluster import ClusterError
from diskless_core.cli.main import main
from diskless_core.cli.raw_request import Address
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DescribeClusterResponse, DescribeQuorumResponse

ASKED = Address("127.0.0.1", 9092)
_Topic = DescribeQuorumResponse.TopicData
_Partition = _Topic.PartitionData


def described(controller: int = 2, reason: str | None = "its log fails") -> DescribeClusterResponse:
    broker = DescribeClusterResponse.DescribeClusterBroker
    return DescribeClusterResponse(
        error_code=0,
        cluster_id="c",
        controller_id=controller,
        brokers=[
            broker(broker_id=3, host="h3", port=9, rack=None, is_fenced=True, fenced_reason=reason),
            broker(broker_id=2, host="h2", port=9, rack="b", is_fenced=False),
        ],
    )


def quorum(topic: str, index: int, **fields: Any) -> DescribeQuorumResponse:
    partition = _Partition(partition_index=index, **fields)
    return DescribeQuorumResponse(error_code=0, topics=[_Topic(topic_name=topic, partitions=[partition])], nodes=[])


def led(topic: str, index: int, offsets: dict[int, int]) -> DescribeQuorumResponse:
    voters = [_Partition.ReplicaState(replica_id=node_id, log_end_offset=offset) for node_id, offset in offsets.items()]
    return quorum(
        topic, index, error_code=0, leader_id=2, leader_epoch=7, high_watermark=10, current_voters=voters, observers=[]
    )


QUORUMS = [
    led("__cluster_metadata", 0, {2: 10, 3: 4, 4: -1}),
    led("__diskless_metadata", 0, {2: 10}),
    quorum("__diskless_metadata", 1, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), error_message=None),
]


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster_status.read_status(ASKED, described(), QUORUMS)
    monkeypatch.setattr(cluster_status, "_ask", lambda _: found)


def test_brokers_come_by_their_ids_with_what_is_known_of_them() -> None:
    found = cluster_status.read_status(ASKED, described(), [])

    assert [(one.id, one.rack, one.is_fenced, one.is_controller) for one in found.brokers] == [
        (2, "b", False, True),
        (3, None, True, False),
    ]
    assert cluster_status.read_status(ASKED, described(controller=-1), []).controller is None


@pytest.mark.usefixtures("answered")
def test_the_tables_say_who_leads_and_who_is_behind() -> None:
    lines = CliRunner().invoke(main, ["cluster", "status", "-b", "h:1"]).output.splitlines()

    assert lines[0] == "cluster c, controller 2, as told by 127.0.0.1:9092"
    assert [line.split(maxsplit=3) for line in lines if "9" in line and line.strip()[0] in "23"] == [
        ["2", "h2:9", "b", "live, controller"],
        ["3", "h3:9", "-", "fenced"],
    ]
    assert "broker 3 is fenced: its log fails" in lines
    assert ["cluster-0", "2", "7", "10", "3:", "6,", "4:", "no", "answer"] in [line.split() for line in lines]
    assert ["diskless-0", "2", "7", "10", "-"] in [line.split() for line in lines]
    assert lines[-1] == "brokers that neither lead nor follow a coordinator have no copy of it: they ask its leader"
    assert any("diskless-1" in line and "NOT_LEADER_OR_FOLLOWER" in line for line in lines)


@pytest.mark.usefixtures("answered")
def test_json_has_all_of_it() -> None:
    found = json.loads(CliRunner().invoke(main, ["cluster", "status", "--json", "-b", "h:1"]).output)

    assert (found["cluster_id"], found["controller"], found["asked"]) == ("c", 2, "127.0.0.1:9092")
    assert [one["fenced_reason"] for one in found["brokers"]] == [None, "its log fails"]
    assert found["shards"][0]["copies"] == [
        {"broker": 2, "offset": 10, "lag": 0},
        {"broker": 3, "offset": 4, "lag": 6},
        {"broker": 4, "offset": None, "lag": None},
    ]
    assert [one["without_copy"] for one in found["shards"]] == [[], [3], []]
    assert found["shards"][2]["error"] == "NOT_LEADER_OR_FOLLOWER"


def test_nothing_is_said_of_copies_where_every_broker_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster_status.read_status(ASKED, described(), QUORUMS[:1])
    monkeypatch.setattr(cluster_status, "_ask", lambda _: found)

    assert "no copy" not in CliRunner().invoke(main, ["cluster", "status", "-b", "h:1"]).output


def test_the_next_broker_is_asked_where_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster_status.read_status(ASKED, described(), QUORUMS)

    def ask(address: Address) -> cluster_status.ClusterStatus:
        if address.port == 1:
            raise ConnectionRefusedError("nobody listens")
        return found

    monkeypatch.setattr(cluster_status, "_ask", ask)
    assert cluster_status.look([Address("h", 1), Address("h", 2)]) is found
    with pytest.raises(ClusterError, match="h:1: nobody listens"):
        cluster_status.look([Address("h", 1)])


def test_a_command_without_a_broker_says_so_and_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = CliRunner().invoke(main, ["cluster", "status", "-b", f"127.0.0.1:{port}"])

    assert done.exit_code == 1
    assert f"no broker answers: 127.0.0.1:{port}" in done.output


def test_addresses_are_read_and_what_is_none_is_refused() -> None:
    assert cluster_status.parse_addresses("a:1, [::1]:2") == [Address("a", 1), Address("::1", 2)]
    for text in ("a", "a:b", "", "a:1,"):
        with pytest.raises(typer.BadParameter):
            cluster_status.parse_addresses(text)
