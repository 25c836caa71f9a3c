"""`diskless cluster status`: the brokers of a cluster, and how far each of them is with each coordinator.

Any broker can be asked, by Kafka's protocol: DescribeCluster, and DescribeQuorum of all coordinator shards.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from diskless_core.cli import common, text
from diskless_core.cli.client.cluster import ClusterError
from diskless_core.cli.client.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapOption,
    ends_on_errors,
)
from diskless_core.cli.raw_request import Address, ask
from diskless_core.cli.tables import echo_table
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from diskless_core.shards import CLUSTER_SHARD, SHARD_KINDS, short_name

TIMEOUT_S = 5.0
"""How long a broker may be silent before the next one is asked."""

_VERSION = 2
_NO_REASON = "the controller did not say why"
_CLEAR_SCREEN = "\x1b[2J\x1b[H"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """A registered broker. A fenced one gets no clients; `fenced_reason` says why, if the controller answers."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    fenced_reason: str | None
    is_controller: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus:
    """A broker's copy of a shard: below `offset` all is applied, `lag` is what it lacks. None: it gave no answer."""

    broker: int
    offset: int | None
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """A shard. Where `error` says why it is not known who leads, there is nothing else.

    Brokers `without_copy` are registered, and not nominated for the shard: they ask its leader.
    """

    shard: str
    leader: int | None
    term: int | None
    high_watermark: int | None
    copies: Sequence[CopyStatus]
    without_copy: Sequence[int]
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """What one broker, the one at `asked`, says of its cluster."""

    cluster_id: str
    asked: str
    controller: int | None
    brokers: Sequence[BrokerStatus]
    shards: Sequence[ShardStatus]


@ends_on_errors()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two looks of --watch.")
    ] = 2.0,
    as_json: common.JsonOption = False,
    bootstrap_server: BootstrapOption = None,
) -> None:
    """Show brokers, their racks, which are fenced, the controller, and who leads and follows each coordinator.

    Every broker answers for the whole cluster: it asks the others how far they are. Brokers that neither lead nor
    follow a coordinator have no copy of it. With --watch, a broker that does not answer any more is replaced by another
    one that it told of.
    """
    addresses = parse_addresses(bootstrap_server or DEFAULT_BOOTSTRAP_SERVERS)
    pause = threading.Event()
    while True:
        try:
            found = look(addresses)
        except ClusterError as error:
            if not watch:
                raise
            typer.echo(str(error), err=True)
        else:
            told = [Address(one.host, one.port) for one in found.brokers]
            addresses = list(dict.fromkeys([*addresses, *told]))
            _show(found, as_json=as_json, clear=watch and sys.stdout.isatty())
        if not watch:
            return
        pause.wait(interval)


def parse_addresses(servers: str) -> list[Address]:
    """Read `host:port`, or several by commas; a usage error for any other text."""
    addresses = []
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()):
            raise typer.BadParameter(f"{server!r} is not HOST:PORT", param_hint="--bootstrap-server")
        addresses.append(Address(host.strip("[]"), int(port)))
    return addresses


def look(addresses: Sequence[Address]) -> ClusterStatus:
    """What the first broker that answers says; raises `ClusterError` when none does."""
    problems = []
    for address in addresses:
        try:
            return _ask(address)
        except (OSError, EOFError, ValueError) as error:
            problems.append(f"{address}: {error}")
    raise ClusterError(f"no broker answers: {'; '.join(problems)}. Correct --bootstrap-server, or start one")


def _ask(address: Address) -> ClusterStatus:
    described = ask(address, DescribeClusterRequest(include_fenced_brokers=True), _VERSION, TIMEOUT_S)
    if described.error_code:
        raise ValueError(f"{code_of(described.error_code).name}: {described.error_message}")
    quorums = [ask(address, request, _VERSION, TIMEOUT_S) for request in _quorum_requests()]
    return read_status(address, described, quorums)


def _quorum_requests() -> list[DescribeQuorumRequest]:
    """The one that Apache Kafka knows too, and one for all other shards."""
    topic = DescribeQuorumRequest.TopicData
    cluster_shard = topic.PartitionData(partition_index=CLUSTER_SHARD.index)
    others = [kind.topic for kind in SHARD_KINDS if kind.topic != CLUSTER_SHARD.topic]
    return [
        DescribeQuorumRequest(topics=[topic(topic_name=CLUSTER_SHARD.topic, partitions=[cluster_shard])]),
        DescribeQuorumRequest(topics=[topic(topic_name=name, partitions=[]) for name in others]),
    ]


def read_status(
    asked: Address, described: DescribeClusterResponse, quorums: Sequence[DescribeQuorumResponse]
) -> ClusterStatus:
    """What the answers say."""
    controller = described.controller_id if described.controller_id >= 0 else None
    node_ids = sorted(one.broker_id for one in described.brokers)
    return ClusterStatus(
        cluster_id=described.cluster_id,
        asked=str(asked),
        controller=controller,
        brokers=[
            BrokerStatus(
                id=one.broker_id,
                host=one.host,
                port=one.port,
                rack=one.rack,
                is_fenced=one.is_fenced,
                fenced_reason=one.fenced_reason,
                is_controller=one.broker_id == controller,
            )
            for one in sorted(described.brokers, key=lambda one: one.broker_id)
        ],
        shards=[
            _shard(ShardId(topic.topic_name, partition.partition_index), partition, node_ids)
            for quorum in quorums
            for topic in quorum.topics
            for partition in topic.partitions
        ],
    )


def _shard(
    shard: ShardId, told: DescribeQuorumResponse.TopicData.PartitionData, node_ids: Sequence[int]
) -> ShardStatus:
    error = code_of(told.error_code)
    if error is not ErrorCode.NONE:
        return ShardStatus(
            shard=short_name(shard),
            leader=None,
            term=None,
            high_watermark=None,
            copies=[],
            without_copy=[],
            error=error.name,
        )
    with_copy = {one.replica_id for one in told.current_voters}
    return ShardStatus(
        shard=short_name(shard),
        leader=told.leader_id,
        term=told.leader_epoch,
        high_watermark=told.high_watermark,
        copies=[
            CopyStatus(
                broker=one.replica_id,
                offset=one.log_end_offset if one.log_end_offset >= 0 else None,
                lag=told.high_watermark - one.log_end_offset if one.log_end_offset >= 0 else None,
            )
            for one in told.current_voters
        ],
        without_copy=[node_id for node_id in node_ids if node_id not in with_copy],
        error=None,
    )


def _show(found: ClusterStatus, *, as_json: bool, clear: bool) -> None:
    if as_json:
        common.echo_json(asdict(found))
        return
    if clear:
        typer.echo(_CLEAR_SCREEN, nl=False)
    controller = text.NONE if found.controller is None else found.controller
    typer.echo(f"cluster {found.cluster_id}, controller {controller}, as told by {found.asked}\n")
    echo_table(
        ("broker", "address", "rack", "state"),
        [(one.id, f"{one.host}:{one.port}", one.rack, _state(one)) for one in found.brokers],
    )
    for one in found.brokers:
        if one.is_fenced:
            typer.echo(f"broker {one.id} is fenced: {one.fenced_reason or _NO_REASON}")
    typer.echo("")
    echo_table(
        ("coordinator", "leader", "term", "high watermark", "followers, by their lag"),
        [(one.shard, one.leader, one.term, one.high_watermark, _followers(one)) for one in found.shards],
    )
    if any(one.without_copy for one in found.shards):
        typer.echo("\nbrokers that neither lead nor follow a coordinator have no copy of it: they ask its leader")


def _state(broker: BrokerStatus) -> str:
    state = "fenced" if broker.is_fenced else "live"
    return f"{state}, controller" if broker.is_controller else state


def _followers(shard: ShardStatus) -> str:
    if shard.error is not None:
        return f"nobody is known to lead: {shard.error}"
    lags = [
        f"{copy.broker}: {'no answer' if copy.lag is None else copy.lag}"
        for copy in shard.copies
        if copy.broker != shard.leader
    ]
    return ", ".join(lags) or text.NONE
