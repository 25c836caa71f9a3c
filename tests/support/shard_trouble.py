"""The rules of a shard's state machine that are trouble: with nodes, with their backends, and with who leads."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Claim
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.records import PartitionsCreated, encode
from diskless_core.diskless.shard import DisklessShard
from diskless_core.snapshot.reading import MANIFEST_SUFFIX
from diskless_core.testing.fakes.log import AppendFault
from diskless_core.testing.fakes.objects import Operation
from tests.support.shard_commands import ShardCommands, commit_of_this, some_batches
from tests.support.shard_machine import NODES, PATIENCE_S, Doom, dooms
from tests.support.shard_requests import Wanted
from tests.support.shards import SHARD_ID

FOREIGN_NODE = 9
EMPTY = 0


class ShardTrouble(ShardCommands):
    """What happens, and what nodes do on their own account."""

    # --- snapshots -----------------------------------------------------------------------------------------------

    @rule(
        prune=st.booleans(), planned=st.lists(st.sampled_from([Operation.PUT, Operation.GET]), max_size=1), doom=dooms
    )
    def take_a_snapshot(self, prune: bool, planned: list[Operation], doom: Doom | None) -> None:
        async def take() -> None:
            leader = await self.cluster.leading()
            for operation in planned:
                self.cluster.objects.fail_next(operation)
            await self.work(leader, lambda node: node.take_snapshot(prune=prune), doom)

        self.do(take())

    @rule(wanted=st.lists(some_batches, min_size=1, max_size=3))
    def the_follower_falls_behind_the_start_of_the_log(self, wanted: list[list[Wanted]]) -> None:
        """And goes on from the snapshot, without being started again."""
        self.do(self.cluster.settle())
        self.the_follower_lags()
        for one in wanted:
            self.commit(one, (0,), 0, [], None)
        self.take_a_snapshot(True, [], None)
        self.do(self.cluster.settle())

    @rule(
        wanted=some_batches,
        damage=st.sampled_from(["manifest", "part", "missing part"]),
        node_id=st.sampled_from(NODES),
    )
    def the_newest_snapshot_is_damaged_and_a_store_lost(self, wanted: list[Wanted], damage: str, node_id: int) -> None:
        """The one before, or the log, has all of it still."""
        objects = self.cluster.objects.objects
        self.take_a_snapshot(True, [], None)
        self.commit(wanted, (0,), 0, [], None)
        known = set(objects)
        self.take_a_snapshot(False, [], None)
        for key in sorted(objects.keys() - known):
            if damage == "missing part" and not key.endswith(MANIFEST_SUFFIX):
                del objects[key]
            elif key.endswith(MANIFEST_SUFFIX) == (damage == "manifest"):
                objects[key] = objects[key][:-1] + b"?"
        self.restart(node_id, False, EMPTY, None)

    @rule(wanted=st.lists(some_batches, min_size=1, max_size=3))
    def take_a_snapshot_while_commits_go_on(self, wanted: list[list[Wanted]]) -> None:
        async def take() -> asyncio.Task[None]:
            leader = await self.cluster.leading()
            self.cluster.objects.delay(Operation.PUT, 0.5)
            taken = asyncio.create_task(self.work(leader, lambda node: node.take_snapshot(prune=True)))
            await asyncio.sleep(0.1)
            return taken

        taken = self.do(take())
        for one in wanted:
            self.commit(one, (0,), 0, [], None)
        self.do(asyncio.wait_for(taken, PATIENCE_S))
        self.cluster.objects.delay(Operation.PUT, 0)

    # --- what happens to the nodes ---------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.01, 1, 1, 100]))
    def time_passes(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @rule(node_id=st.sampled_from(NODES), skew_ms=st.sampled_from([0, -70_000, 70_000, 500]))
    def a_clock_is_wrong(self, node_id: int, skew_ms: int) -> None:
        self.cluster.nodes[node_id].clock.skew_ms = skew_ms

    @rule(node_id=st.sampled_from(NODES))
    def keep_a_copy_of_the_store(self, node_id: int) -> None:
        node = self.cluster.nodes[node_id]
        node.kept.append(node.store.disk.copy())

    @rule(node_id=st.sampled_from(NODES), failing=st.booleans())
    def the_store_fails_or_recovers(self, node_id: int, failing: bool) -> None:
        self.cluster.nodes[node_id].store.failing = failing

    @rule(wanted=some_batches, seconds=st.sampled_from([0.1, 3]))
    def stores_cannot_be_read_for_a_while(self, wanted: list[Wanted], seconds: float) -> None:
        self.set_unreadable(True)
        self.loop.call_later(seconds, self.set_unreadable, False)
        self.commit(wanted, (0,), 0, [], None)

    @rule(node_id=st.sampled_from(NODES), clean=st.booleans(), back=st.integers(EMPTY, 4), doom=dooms)
    def restart(self, node_id: int, clean: bool, back: int, doom: Doom | None) -> None:
        """With the store as it is, at a state of earlier, or empty; and the next process may die at its beginning."""

        async def again() -> None:
            node = self.cluster.nodes[node_id]
            kept = [node.store.disk.empty(), None, *node.kept]
            await node.restart(clean=clean, disk=kept[back % len(kept)], dies_at=doom.step if doom else None)

        self.do(again())

    @rule(leader=st.sampled_from(NODES))
    def another_node_leads(self, leader: int) -> None:
        self.cluster.nominate(leader)

    @rule()
    def all_nodes_are_told_to_lead(self) -> None:
        self.cluster.nominate_everybody()

    @rule()
    def the_follower_lags(self) -> None:
        """Until the next election."""
        for node_id in NODES:
            if node_id != self.cluster.leader:
                self.cluster.nominate(self.cluster.leader)
                self.cluster.shared.pause_reads(node_id)

    @rule()
    def a_stranger_claims(self) -> None:
        claim = Claim(node_id=FOREIGN_NODE, claim_id=self.cluster.clock.new_uuid())
        self.cluster.log.append(entries.encode_claim(claim, 0))

    @rule(delays=st.sampled_from([[0.0], [0.0, 0.001, 0.05, 0.4]]))
    def appends_take_time(self, delays: list[float]) -> None:
        chance = random.Random(1)
        self.cluster.shared.append_delay_s = lambda: chance.choice(delays)

    @rule(node_id=st.sampled_from(NODES))
    def the_log_cannot_be_read_for_a_moment(self, node_id: int) -> None:
        self.cluster.shared.fail_next_read(node_id)

    @rule()
    def late_appends_land(self) -> None:
        self.cluster.shared.land_late_appends(SHARD_ID)

    @rule(which=st.integers(0, 100))
    def an_old_entry_lands_again(self, which: int) -> None:
        content = self.cluster.shared.content(SHARD_ID)
        if content and not isinstance(entries.decode(entry := content[which % len(content)].data), Claim):
            self.cluster.log.append(entry)

    @rule(back=st.integers(0, 50), sequence=st.integers(0, 3))
    def somebody_writes_under_a_term_that_is_over(self, back: int, sequence: int) -> None:
        async def term(shard: DisklessShard) -> int:
            await shard.barrier()
            assert shard.term is not None
            return shard.term

        over = self.ask(term).value - 1 - back
        record = encode(PartitionsCreated(topic_id=b"?" * 16, name="never", partitions=[0]))
        self.cluster.log.append(entries.encode_entry(over, sequence, [record], 0))

    @rule(wanted=some_batches, lands=st.booleans())
    def the_leader_is_killed_with_a_commit_under_way(self, wanted: list[Wanted], lands: bool) -> None:
        request = self.request(wanted)

        async def kill_meanwhile() -> None:
            leader = await self.cluster.settle()
            if lands:
                self.cluster.shared.hold_high_watermark(SHARD_ID)
            else:
                self.cluster.shared.fail_next_append(AppendFault.APPENDED_LATER)
            commit = asyncio.create_task(leader.ask(commit_of_this(request)))
            await asyncio.sleep(0.01)
            leader.process.kill()
            self.cluster.shared.release_high_watermark(SHARD_ID)
            await asyncio.gather(commit, return_exceptions=True)

        self.do(kill_meanwhile())
        self.expect(request, self.ask(lambda shard: shard.commit_file(request)))

    @rule(wanted=some_batches)
    def the_leader_lags_and_is_deposed_with_a_commit_under_way(self, wanted: list[Wanted]) -> None:
        request = self.request(wanted)

        async def depose() -> list[Any]:
            old = await self.cluster.settle()
            new = next(node for node in self.cluster.nodes.values() if node is not old)
            self.cluster.shared.pause_reads(old.node_id)
            self.cluster.shared.set_leader(SHARD_ID, old.node_id, seen_by=[old.node_id])
            self.cluster.shared.set_leader(SHARD_ID, new.node_id, seen_by=[new.node_id])
            await new.shard.until_leading()
            commit = asyncio.create_task(old.ask(commit_of_this(request)))
            strict_read = asyncio.create_task(old.ask(lambda shard: shard.barrier()))
            await asyncio.sleep(2)
            for asked in (commit, strict_read):
                assert not asked.done() or asked.exception(), "a deposed leader answered"
            self.cluster.nominate(new.node_id)
            self.cluster.shared.resume_reads(old.node_id)
            return await asyncio.gather(commit, strict_read, return_exceptions=True)

        assert all(isinstance(outcome, CoordinatorError) for outcome in self.do(depose()))
        self.expect(request, self.ask(lambda shard: shard.commit_file(request)))
