"""Counts DisklessCommitFile requests for each WAL object in KIP-1164's six scenarios, with gateways and without.

What decides is the real thing: where clients are led (`LeaderChoice`), the gateways (`kip1164`), and how a broker
commits an object (`CoordinatorClients`), down to the requests' bytes. Clients, objects and the network are a model:
each client writes a batch for every coordinator, and each broker makes one object of what its clients sent. So an
object has batches of as many coordinators as it ever can.

`python -m tests.support.commits_per_object` writes the table into docs/cluster.md.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from diskless_core.cluster.gateway_plan import Cluster, model_cluster
from diskless_core.cluster.leader_choice import ClientIdentity, LeaderChoice
from diskless_core.coordinator.peers import PeerRequest
from diskless_core.diskless.clients import CoordinatorClients
from diskless_core.diskless.commands import BatchResult, CommitFile
from diskless_core.plugin.gateway_placement import Gateways
from diskless_core.protocol.commit_file import CommitBatch, CommitFileResponse, pack_response, unpack_request
from diskless_core.protocol.messages import DisklessCommitFileRequest
from tests.support.gateways import placement

PAGE = Path(__file__).parents[2] / "docs/cluster.md"
COMMAND = "`python -m tests.support.commits_per_object`"

RACKS, COORDINATORS = 3, 12
CLIENTS_OF_A_BROKER = 8
"""On the average: so many that each broker has some."""

_BATCH_BYTES = 1000


class Scenario(NamedTuple):
    """One of the KIP's. `bound` is what it says of commit requests of an object, at the most."""

    brokers: int
    bound: int


SCENARIOS = (
    Scenario(3, 3),
    Scenario(6, 6),
    Scenario(12, 12),
    Scenario(24, 2),
    Scenario(36, 1),
    Scenario(108, 1),
)


@dataclass(frozen=True, slots=True)
class Counted:
    """Commit requests that went to other brokers, for each object."""

    by_object: Sequence[int]

    @property
    def mean(self) -> float:
        return mean(self.by_object)

    @property
    def most(self) -> int:
        return max(self.by_object)


@dataclass(slots=True)
class _Network:
    """Takes every commit for done, and counts requests by the object."""

    requests: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        del node_id, timeout_s
        assert request.api_key == DisklessCommitFileRequest.API_KEY
        commit = unpack_request(request.body)
        self.requests[commit.object_key] += 1
        return pack_response(CommitFileResponse(results=[BatchResult(base_offset=0)] * len(commit.batches)))


@dataclass(frozen=True, slots=True)
class _Replica:
    """What a broker knows of a coordinator that somebody leads."""

    leader_hint: int | None
    leading: bool

    async def until_led_elsewhere(self, node_id: int) -> None:
        await asyncio.Event().wait()

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        return [[BatchResult(base_offset=0)] * len(request.batches) for request in requests]


def count(brokers: int, *, with_gateways: bool) -> Counted:
    """Commit requests for the objects of one round, of all brokers."""
    cluster = model_cluster(brokers=brokers, racks=RACKS, coordinators=COORDINATORS)
    gateways = placement("kip1164").place(cluster.coordinators, cluster.brokers) if with_gateways else {}
    return asyncio.run(_commit_all(cluster, _objects(cluster, gateways)))


def _objects(cluster: Cluster, gateways: Gateways) -> Mapping[int, Mapping[int, int]]:
    """By each broker the coordinators of which its object has batches, with their number."""
    choice = LeaderChoice(cluster.brokers, gateways)
    gathered: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for number in range(CLIENTS_OF_A_BROKER * len(cluster.brokers)):
        client = ClientIdentity("ANONYMOUS", f"producer-{number}", f"10.0.{number // 256}.{number % 256}")
        leaders = choice.leaders(client, f"rack-{1 + number % RACKS}")
        for coordinator in cluster.coordinators:
            gathered[leaders.of(coordinator.shard)][coordinator.shard] += 1
    return gathered


async def _commit_all(cluster: Cluster, objects: Mapping[int, Mapping[int, int]]) -> Counted:
    network = _Network()
    for node_id, gathered in objects.items():
        replicas: Any = {
            one.shard: _Replica(one.leader_id, leading=one.leader_id == node_id) for one in cluster.coordinators
        }
        peers: Any = None
        clients = CoordinatorClients(node_id, replicas, network, peers)
        key = f"wal/{node_id}"
        network.requests[key] = 0
        await asyncio.gather(
            *(
                clients.coordinators[shard].commit_files([_commit(key, node_id, shard, batches, gathered)])
                for shard, batches in gathered.items()
            )
        )
        await clients.stop()
    return Counted(list(network.requests.values()))


def _commit(key: str, node_id: int, shard: int, batches: int, gathered: Mapping[int, int]) -> CommitFile:
    return CommitFile(
        object_key=key,
        file_size=_BATCH_BYTES * sum(gathered.values()),
        uploader_id=node_id,
        owner_ids=sorted(gathered),
        batches=[
            CommitBatch(shard.to_bytes(16, "big"), number, _BATCH_BYTES * number, _BATCH_BYTES, 1, 0, 0, -1, -1, -1, -1)
            for number in range(batches)
        ],
    )


def render() -> str:
    """The table, with the words around it."""
    rows = []
    for scenario in SCENARIOS:
        with_gateways = count(scenario.brokers, with_gateways=True)
        without = count(scenario.brokers, with_gateways=False)
        rows.append(f"| {scenario.brokers} | {scenario.bound} | {_cell(with_gateways)} | {_cell(without)} |\n")
    return (
        f"\n{COORDINATORS} coordinators in {RACKS} racks, and producers that each write to partitions of all of them: "
        "commit requests\nto other brokers for an object, on the average (and at the most), counted where a broker "
        f"commits by {COMMAND}.\n\n"
        "| Brokers | The KIP, at the most | With gateways | Any broker of the rack |\n|---|---|---|---|\n"
        + "".join(rows)
        + "\n"
    )


def _cell(counted: Counted) -> str:
    return f"{counted.mean:.2f} ({counted.most})"


def page_with(table: str) -> str:
    """The page with this table in its place."""
    begin, end = f"<!-- begin gateways: written by {COMMAND} -->\n", "<!-- end gateways -->"
    before, found, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{PAGE} has no place for the table")
    return before + begin + table + end + after


if __name__ == "__main__":
    PAGE.write_text(page_with(render()), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
