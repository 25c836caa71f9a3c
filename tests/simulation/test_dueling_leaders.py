"""Two nodes that are both told to lead write into one log at once: time is lost, never data."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import NO_DIGEST, Acceptance, Claim
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import BatchResult, CommitFile, PartitionKey
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import AppendFault, SharedLog
from tests.support.commit_model import Appended, assert_runs_are
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

NODES = (1, 2)
PARTITIONS = 3
COMMITS = 12


class Duel:
    """Nodes, clients and a source of trouble, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shared = SharedLog(append_delay_s=lambda: self.random.choice([0.0, 0.001, 0.05, 0.4]))
        clock = VirtualClock(asyncio.get_running_loop(), seed)
        self.nodes = {node_id: ShardNode(self.shared, clock, node_id) for node_id in NODES}
        self.acknowledged: dict[PartitionKey, list[tuple[CommitFile, BatchResult]]] = {}
        self.answered_by: Counter[int] = Counter()
        self.faults = 0

    async def fight(self) -> None:
        for node_id, node in self.nodes.items():
            self.shared.set_leader(SHARD_ID, node_id, seen_by=[node_id])
            await node.start(lead=False)
        await self.until_answered(lambda shard: shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", range(PARTITIONS)))
        self.shared.append_error = self.trouble
        clients = [self.client(PartitionKey(TOPIC, partition)) for partition in range(PARTITIONS)]
        readers = [asyncio.create_task(self.watch(node)) for node in self.nodes.values()]
        await asyncio.wait_for(asyncio.gather(*clients), 3600)
        for reader in readers:
            reader.cancel()
        for outcome in await asyncio.gather(*readers, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError), outcome

    def trouble(self, *_: object) -> AppendFault | None:
        if self.faults < 10 and self.random.random() < 0.1:
            self.faults += 1
            return self.random.choice(list(AppendFault))
        return None

    async def client(self, key: PartitionKey) -> None:
        """One at a time for a partition, as the broker's committer sees to."""
        for number in range(COMMITS):
            producer = (7, 0, number)
            request = commit_of(f"{key.partition}-{number}", batch(key.partition, producer=producer))
            [result] = await self.until_answered(lambda shard, request=request: shard.commit_file(request))
            assert result.error is ErrorCode.NONE
            self.acknowledged.setdefault(key, []).append((request, result))
            await asyncio.sleep(self.random.choice([0, 0.1, 1]))

    async def until_answered(self, ask):
        while True:
            node_id = self.random.choice(NODES)
            try:
                answer = await ask(self.nodes[node_id].shard)
            except CoordinatorError:
                await asyncio.sleep(self.random.random() / 5)
            else:
                self.answered_by[node_id] += 1
                return answer

    async def watch(self, node: ShardNode) -> None:
        """High watermarks never go back."""
        seen: dict[PartitionKey, int] = {}
        while True:
            for key, head in node.shard.heads().items():
                assert head.next_offset >= seen.get(key, 0)
                seen[key] = head.next_offset
            await asyncio.sleep(0.02)

    async def make_peace(self) -> None:
        self.shared.append_error = None
        self.shared.set_leader(SHARD_ID, 1)
        self.shared.land_late_appends(SHARD_ID)
        end = self.shared.state(SHARD_ID)
        while True:
            if all(node.shard.next_offset == end.end for node in self.nodes.values()):
                return
            await asyncio.sleep(0.1)

    async def compare(self) -> None:
        first, second = (node.tables() for node in self.nodes.values())
        assert first == second
        for node in self.nodes.values():
            for key, commits in self.acknowledged.items():
                expected = [
                    Appended(request.object_key, request.batches[0], result.base_offset, result.append_time)
                    for request, result in commits
                ]
                assert [one.base_offset for one in expected] == list(range(COMMITS))
                assert_runs_are(await node.read_all(key), expected)

    def assert_one_entry_for_each_term_and_sequence(self) -> None:
        acceptance, accepted = Acceptance(), Counter[tuple[int, int]]()
        for one in self.shared.content(SHARD_ID):
            entry = entries.decode(one.data)
            if isinstance(entry, Claim):
                acceptance = acceptance.claimed(one.offset, NO_DIGEST)
            elif acceptance.accepts(entry):
                accepted[entry.term, entry.sequence] += 1
                acceptance = acceptance.advanced(one.offset, NO_DIGEST)
        assert set(accepted.values()) == {1}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_what_one_of_two_dueling_leaders_acknowledged_both_have(seed: int) -> None:
    async def main() -> None:
        duel = Duel(seed)
        await duel.fight()
        await duel.make_peace()
        await duel.compare()
        duel.assert_one_entry_for_each_term_and_sequence()
        for node in duel.nodes.values():
            await node.stop()

    run(main)


def test_in_a_duel_both_get_to_lead_now_and_then() -> None:
    async def main() -> None:
        duel = Duel(1)
        await duel.fight()
        assert set(duel.answered_by) == set(NODES)
        claims = [one for one in duel.shared.content(SHARD_ID) if isinstance(entries.decode(one.data), Claim)]
        assert len(claims) > len(NODES)
        for node in duel.nodes.values():
            await node.stop()

    run(main)
