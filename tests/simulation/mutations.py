"""Rules of the broker, each broken on purpose: the checker has to notice every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from diskless_bucket_log import decisions, pruning, view, writer
from diskless_bucket_log.decisions import Confirming, Deleting, Putting
from diskless_bucket_log.requests import ShardObjects
from diskless_bucket_log.writer import ShardWriter
from diskless_core.cluster import nominations
from diskless_core.cluster.membership.sessions import Sessions
from diskless_core.cluster.nominations import FOLLOWERS
from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Acceptance
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.feeds import ShardFeeds
from diskless_core.coordinator.leader import Leader
from diskless_core.coordinator.pipeline import Pipeline
from diskless_core.coordinator.replica import Replica
from diskless_core.coordinator.shard_store import StoreThread
from diskless_core.coordinator.snapshotter import Snapshotter
from diskless_core.coordinator.tables import Page
from diskless_core.diskless import operations, producer_state
from diskless_core.diskless.file_stages import Stage
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import PRODUCERS
from diskless_core.fetch.object_cache import Chunk
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.files import deletion_plan as ending
from diskless_core.files.orphans import OrphanScanner
from diskless_core.files.trimmer import Trimmer
from diskless_core.groups.offset_commit import OffsetCommitter
from diskless_core.passed_time import Passed
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.produce.committer import CommitTicket
from diskless_core.produce.sequence_gaps import SequenceGaps
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.follow_shard import FollowShardAnswer, pack_entry
from diskless_core.tiering import removal_rules
from diskless_core.tiering.copies import Copies
from diskless_core.tiering.planning import NEVER
from diskless_core.tiering.removal import SegmentRemover
from diskless_kafka import log_shard
from diskless_kafka.nominations import Nomination
from tests.simulation.scenario import LogKind, Scenario

WEAK_GRACE_MS = 10_000


def old_terms_count(patch: pytest.MonkeyPatch) -> None:
    """A deposed leader's entries are accepted."""
    patch.setattr(Acceptance, "accepts", lambda self, entry: True)


def followers_that_are_behind_are_let_go(patch: pytest.MonkeyPatch) -> None:
    """A follower that is to take another's place is let go when all others have caught up."""

    def without_surplus(planner: Any) -> Sequence[nominations.Nomination]:
        for held in planner._held():
            for one in held.followers if len(held.followers) > FOLLOWERS else ():
                rest = [other for other in held.followers if other != one]
                if all(planner._is_ready(held.shard, other) for other in rest if other in planner.brokers):
                    return [nominations._with_followers(held, rest)]
        return []

    patch.setattr(nominations._Planner, "_without_surplus", without_surplus)


def answers_before_read_back(patch: pytest.MonkeyPatch) -> None:
    """A command is answered as soon as the log was asked to take it."""
    hand_over = Pipeline.hand_over

    def answer(self: Pipeline) -> list[bytes]:
        for pending in self._queued:
            if not pending.done.done():
                pending.done.set_result(None)
        return hand_over(self)

    patch.setattr(Pipeline, "hand_over", answer)


def deposed_leaders_stay(patch: pytest.MonkeyPatch) -> None:
    """Another node's claim does not end a term."""

    def claimed(self: Leader, claim: Any, offset: int) -> None:
        if self.leadership.claim == claim:
            self.leadership.claim = None
            self.leadership.term = offset
        self.leadership.changed.set()

    patch.setattr(Leader, "claimed", claimed)


def followers_check_no_digests(patch: pytest.MonkeyPatch) -> None:
    """A follower takes what its leader sends, if only term and sequence fit."""
    patch.setattr(entries, "chained", lambda digest, batch: b"the same")


def believes_other_caches(patch: pytest.MonkeyPatch) -> None:
    """A broker takes what another one's cache sends for sound."""
    borrow = ObjectReader._borrow

    async def trusting(self: ObjectReader, *arguments: Any) -> Chunk:
        chunk = await borrow(self, *arguments)
        chunk.is_sound = True
        return chunk

    patch.setattr(ObjectReader, "_borrow", trusting)


def leaders_send_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A leader sends what it has given to the log, before its own reader has accepted it."""
    accepted = ShardFeeds._accepted

    async def hasty(self: ShardFeeds, shard: Any, request: Any) -> FollowShardAnswer:
        answer = await accepted(self, shard, request)
        if answer.error_code or answer.next_offset != shard.next_offset:
            return answer
        offset, acceptance, sent = shard.next_offset, shard._replica.acceptance, list(answer.entries)
        for pending in shard._leader.pipeline._handed_over:
            count = record_batch.read_header(pending.entry).record_count
            batch = LogBatch(offset, offset + count, pending.entry)
            acceptance = acceptance.advanced(offset, entries.chained(acceptance.digest, batch))
            sent.append(pack_entry(batch.offset, batch.next_offset, acceptance.digest, batch.data))
            offset = batch.next_offset
        return FollowShardAnswer(next_offset=offset, digest=acceptance.digest, entries=sent)

    patch.setattr(ShardFeeds, "_accepted", hasty)


def no_turns(patch: pytest.MonkeyPatch) -> None:
    """Objects of one broker are committed in the order in which their uploads end."""

    async def come(self: CommitTicket) -> None:
        return None

    patch.setattr(CommitTicket, "come", come)


def forgets_answers(patch: pytest.MonkeyPatch) -> None:
    """A CommitFile that is sent again is taken for a new one."""
    commit_file = operations.commit_file

    def commit(command: Any, request: Any, rules: Any) -> Any:
        return commit_file(_Blind(command), request, rules)

    patch.setattr(operations, "commit_file", commit)


class _Blind:
    """A command that sees no file that was there before it."""

    def __init__(self, command: Any) -> None:
        self._command = command

    def get(self, table: Any, key: Any) -> Any:
        hidden = table.name == "files" and not self._command.records
        return None if hidden else self._command.get(table, key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._command, name)


def no_idempotence(patch: pytest.MonkeyPatch) -> None:
    """Every batch of a producer is taken for a new one."""
    patch.setattr(producer_state, "check", lambda *_: producer_state.ACCEPTED)


def gaps_are_final(patch: pytest.MonkeyPatch) -> None:
    """What does not follow at one broker is out of order, though the batch before is under way at another one."""
    patch.setattr(SequenceGaps, "judged", lambda self, batches, results: results)


def forgets_producers_too_soon(patch: pytest.MonkeyPatch) -> None:
    """Producers are forgotten at the next check, however lately they wrote."""
    patch.setattr(producer_state, "is_expired", lambda *_: True)


def forgets_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """What has passed is what the wall clock says, whatever speaks against it."""
    patch.setattr(Passed, "since", lambda self, stamp_ms: self.now_ms - stamp_ms)


def never_forgets_producers(patch: pytest.MonkeyPatch) -> None:
    """What is known of producers stays."""
    patch.setattr(operations, "has_expired", lambda *_: False)


def replicas_keep_producers(patch: pytest.MonkeyPatch) -> None:
    """Only the leader forgets what it has found expired."""
    replayed = Replica.replayed

    def replay(self: Any, entry: Any) -> Any:
        writes = yield from replayed(self, entry)
        if PRODUCERS not in writes:
            return writes
        gone = {key for key, window in writes.get(PRODUCERS, {}).items() if window is None}
        return {**writes, PRODUCERS: {key: one for key, one in writes.get(PRODUCERS, {}).items() if key not in gone}}

    patch.setattr(Replica, "replayed", replay)


def no_horizon(patch: pytest.MonkeyPatch) -> None:
    """What a scan for orphans has looked at can still be committed."""
    patch.setattr(operations, "_is_beyond_horizon", lambda *_: False)


def orphans_by_age(patch: pytest.MonkeyPatch) -> None:
    """Whatever is old enough is an orphan, and nobody is asked."""

    async def unknown(self: OrphanScanner, keys: Sequence[str]) -> list[str]:
        return list(keys)

    patch.setattr(OrphanScanner, "_unknown", unknown)


def no_grace(patch: pytest.MonkeyPatch) -> None:
    """A dead object is deleted at once."""
    plan = ending.plan
    patch.setattr(
        "diskless_core.files.deletion.plan", lambda files, moment: plan(files, replace(moment, delete_delay_ms=0))
    )


def no_hand_over(patch: pytest.MonkeyPatch) -> None:
    """The first owner in which an object dies deletes it, whatever the others have."""
    stage_of = ending.stage_of

    def hasty(shard_index: int, file: Any) -> Stage:
        stage = stage_of(shard_index, file)
        return Stage.TO_DELETE if stage in (Stage.TO_HAND_OVER, Stage.WAITING) else stage

    patch.setattr(ending, "stage_of", hasty)


def never_forgets(patch: pytest.MonkeyPatch) -> None:
    """A shard remembers objects for ever."""

    async def forget_files(self: DisklessShard, object_keys: Sequence[str]) -> None:
        return None

    patch.setattr(DisklessShard, "forget_files", forget_files)


def never_trims(patch: pytest.MonkeyPatch) -> None:
    """What was deleted stays in the store, and its objects stay."""

    async def trim(self: Trimmer) -> None:
        return None

    patch.setattr(Trimmer, "trim", trim)


def prunes_too_much(patch: pytest.MonkeyPatch) -> None:
    """The log is pruned without a snapshot that covers it."""
    take = Snapshotter.take

    async def prune_only(self: Snapshotter) -> None:
        if self._shard.next_offset % 2:
            await take(self)
        await self._log.prune(self._shard.id, self._shard.next_offset)

    patch.setattr(Snapshotter, "take", prune_only)


def store_claims_too_much(patch: pytest.MonkeyPatch) -> None:
    """The store notes an offset that it has not reached."""
    write = StoreThread.write

    async def boast(self: StoreThread, page: Page) -> None:
        page.applied_offset += 2
        await write(self, page)

    patch.setattr(StoreThread, "write", boast)


def trusts_its_replica(patch: pytest.MonkeyPatch) -> None:
    """A position that a lagging replica does not know is called out of range."""

    async def checked(self: OffsetRangeCheck, partition: Any, offset: int, found: Any) -> Any:
        return found

    patch.setattr(OffsetRangeCheck, "checked", checked)


def reads_without_proof(patch: pytest.MonkeyPatch) -> None:
    """A strict read trusts the term that the node believes in."""

    async def barrier(self: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr("diskless_core.coordinator.shard.CoordinatorShard.barrier", barrier)


def commits_offsets_in_hope(patch: pytest.MonkeyPatch) -> None:
    """An OffsetCommit is answered before its offsets are committed."""
    store = OffsetCommitter._store

    async def begin(self: OffsetCommitter, request: Any, version: int, parts: Any) -> None:
        async def end() -> None:
            with suppress(CoordinatorError):
                await store(self, request, version, parts)

        asyncio.get_running_loop().create_task(end())
        await asyncio.sleep(0)

    patch.setattr(OffsetCommitter, "_store", begin)


def anybody_commits_offsets(patch: pytest.MonkeyPatch) -> None:
    """Members commit what was theirs once."""
    patch.setattr("diskless_core.groups.offset_commit.check_commit", lambda *_: ErrorCode.NONE)


def forgets_batches_before_the_copy(patch: pytest.MonkeyPatch) -> None:
    """A segment takes the place of its batches as soon as its copy begins."""
    begin = Copies.begin

    async def begin_and_take(self: Copies, shard: DisklessShard, segment: Any) -> Any:
        metadata = await begin(self, shard, segment)
        if metadata is not None:
            await self._take(shard, metadata, segment.start_offset)
        return metadata

    patch.setattr(Copies, "begin", begin_and_take)


def removes_segments_in_use(patch: pytest.MonkeyPatch) -> None:
    """Segments are removed although partitions have records in them."""
    below = removal_rules.below_log_start

    def below_all(segments: Any, taken: Any, log_start_offset: int, is_given_up: Any) -> Any:
        return below(segments, (), NEVER, is_given_up)

    patch.setattr("diskless_core.tiering.removal.below_log_start", below_all)


def leaves_segments(patch: pytest.MonkeyPatch) -> None:
    """Nobody removes what is below the log start."""

    async def nothing(self: SegmentRemover, lag: Any) -> bool:
        return True

    patch.setattr(SegmentRemover, "_remove_below_log_starts", nothing)


def any_nonce_is_ours(patch: pytest.MonkeyPatch) -> None:
    """Bucket log: whatever is found at a number after a failed create is taken for one's own object."""
    patch.setattr(
        writer, "after_read_back", lambda state, found: Confirming(state.header) if found else Putting(state.header)
    )


def nothing_there_is_the_end(patch: pytest.MonkeyPatch) -> None:
    """Bucket log: a missing object is taken for the end of the log, wherever the log starts."""
    judge_read = decisions.judge_read
    for module in (view, decisions):
        patch.setattr(
            module,
            "judge_read",
            lambda position, found, start_number: judge_read(position, found, start_number if found else 0),
        )
    patch.setattr(view, "counts", lambda number, start_number: True)


def deletes_before_the_start_moves(patch: pytest.MonkeyPatch) -> None:
    """Bucket log: what is pruned goes first, and the log start moves afterwards."""
    after_reading_start = pruning.after_reading_start
    patch.setattr(
        pruning,
        "after_reading_start",
        lambda state, start, version: (
            Deleting(state.wanted.number)
            if start.number < state.wanted.number
            else after_reading_start(state, start, version)
        ),
    )

    async def believe(self: ShardObjects, number: int) -> None:
        del self, number

    patch.setattr(ShardObjects, "_require_reached", believe)


def puts_a_copy_at_the_next_number(patch: pytest.MonkeyPatch) -> None:
    """Bucket log: after a create that failed its condition the object is put at the next number, unread."""
    entry_created = ShardWriter._settle

    async def settle(self: Any, state: Any, data: bytes) -> Any:
        answer = await self._objects.create(state.header.number, data)
        return Confirming(state.header) if answer is not None else await entry_created(self, state, data)

    patch.setattr(ShardWriter, "_settle", settle)


def control_batches_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Kafka log: what is no message is not told to readers, who wait for it at the end."""
    as_entries = log_shard.as_entries
    patch.setattr(
        log_shard,
        "as_entries",
        lambda read, offset: as_entries([one for one in read if one.value is not None], offset),
    )


def entries_have_other_offsets(patch: pytest.MonkeyPatch) -> None:
    """Kafka log: an entry has the offset that follows the one before, whatever its message had."""
    as_entries = log_shard.as_entries

    def in_a_row(read: Any, offset: int) -> list[LogBatch]:
        found = as_entries(read, offset)
        return [LogBatch(offset + place, one.next_offset, one.data) for place, one in enumerate(found)]

    patch.setattr(log_shard, "as_entries", in_a_row)


def generations_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """Kafka log: each nomination is the first one."""
    patch.setattr(Nomination, "_next_generation", lambda *_: 1)


def nobody_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """Brokers that are silent keep what they lead."""
    patch.setattr(Sessions, "ended", lambda *_: set())
    patch.setattr(Sessions, "next_end_s", lambda *_: None)  # else who looks for ends finds one at once, without end


@dataclass(frozen=True, slots=True)
class Mutation:
    """A broken rule, and in which worlds it can show: others need not be looked at.

    Attributes:
        steps: how many times as long the worlds are active, for what takes long to come about.
        showed_in: a seed in whose world it has shown, where many others had to be looked at before. It is looked at
            first.
    """

    apply: Callable[[pytest.MonkeyPatch], None]
    can_show_in: Callable[[Scenario], object] = lambda _: True
    steps: float = 1.0
    showed_in: int | None = None

    @property
    def name(self) -> str:
        return self.apply.__name__


def _leaders_change(scenario: Scenario) -> object:
    return scenario.move_leader_every_s or scenario.pause_every_s


def _is_compacted(scenario: Scenario) -> object:
    return scenario.compaction_interval_ms or scenario.compact_every_s


def _is_bucket_log(scenario: Scenario) -> bool:
    return scenario.log is LogKind.BUCKET


def _is_kafka_log(scenario: Scenario) -> bool:
    return scenario.log is LogKind.KAFKA


def _guests_die(scenario: Scenario) -> object:
    """Whether a broker is likely to lead shards that the controller nominates leaders for, and never to come back.

    Who joins two brokers with several shards each gets some of them, once its copies have caught up.
    """
    if scenario.log is LogKind.LENIENT or scenario.brokers != 2 or scenario.shards < 2:
        return False
    return scenario.come_and_go_every_s and 0 < scenario.kill_every_s < 15


def _members_take_turns(scenario: Scenario) -> object:
    """Whether a member that does nothing for a while is likely to be replaced."""
    return scenario.members > 1 and not scenario.processes_end


def _copies_move(scenario: Scenario) -> bool:
    """Whether brokers that come take their share of the copies: not all follow everything."""
    return scenario.log is not LogKind.LENIENT and scenario.brokers > 1 + FOLLOWERS


MUTATIONS: Sequence[Mutation] = (
    Mutation(old_terms_count, _leaders_change),
    Mutation(answers_before_read_back),
    Mutation(deposed_leaders_stay, _leaders_change, showed_in=11),
    Mutation(followers_check_no_digests, lambda scenario: scenario.garble_rate),
    Mutation(believes_other_caches, lambda scenario: scenario.garble_rate),
    Mutation(leaders_send_too_soon, lambda scenario: scenario.log_error_rate or _leaders_change(scenario)),
    Mutation(no_turns, lambda scenario: scenario.linger_ms == 0 and scenario.bucket_slow_rate),
    Mutation(forgets_answers, lambda scenario: scenario.log_error_rate or scenario.loss_rate),
    Mutation(no_idempotence, lambda scenario: scenario.loss_rate or scenario.bucket_slow_rate),
    Mutation(gaps_are_final, lambda scenario: scenario.loss_rate, showed_in=485),
    Mutation(forgets_producers_too_soon, lambda scenario: scenario.producers_expire),
    Mutation(forgets_by_the_wall_clock, lambda scenario: scenario.clock_behind_ms, showed_in=67),
    Mutation(never_forgets_producers, lambda scenario: scenario.producers_expire),
    Mutation(replicas_keep_producers, lambda scenario: scenario.producers_expire),
    Mutation(
        no_horizon, lambda scenario: scenario.scan_every_s and scenario.orphan_grace_ms < WEAK_GRACE_MS, showed_in=103
    ),
    Mutation(orphans_by_age, lambda scenario: scenario.scan_every_s),
    Mutation(no_grace),
    Mutation(no_hand_over, lambda scenario: scenario.shards > 1),
    Mutation(never_forgets),
    Mutation(never_trims, lambda scenario: scenario.deletes_records),
    Mutation(prunes_too_much, lambda scenario: scenario.snapshot_every_s and scenario.kill_every_s),
    Mutation(store_claims_too_much, lambda scenario: scenario.kill_every_s),
    Mutation(trusts_its_replica, lambda scenario: scenario.lag_every_s, showed_in=22),
    Mutation(reads_without_proof, lambda scenario: scenario.lag_every_s, showed_in=142),
    Mutation(commits_offsets_in_hope, lambda scenario: scenario.members),
    Mutation(anybody_commits_offsets, _members_take_turns),
    Mutation(forgets_batches_before_the_copy, _is_compacted),
    Mutation(removes_segments_in_use, _is_compacted),
    Mutation(leaves_segments, _is_compacted),
    Mutation(any_nonce_is_ours, lambda scenario: _is_bucket_log(scenario) and _leaders_change(scenario)),
    Mutation(nothing_there_is_the_end, lambda scenario: _is_bucket_log(scenario) and scenario.snapshot_every_s),
    Mutation(deletes_before_the_start_moves, lambda scenario: _is_bucket_log(scenario) and scenario.snapshot_every_s),
    Mutation(puts_a_copy_at_the_next_number, lambda scenario: _is_bucket_log(scenario) and scenario.log_error_rate),
    Mutation(control_batches_are_forgotten, _is_kafka_log, showed_in=17),
    Mutation(entries_have_other_offsets, _is_kafka_log),
    Mutation(generations_begin_anew, lambda scenario: _is_kafka_log(scenario) and scenario.processes_end, showed_in=20),
    Mutation(followers_that_are_behind_are_let_go, _copies_move),
    Mutation(nobody_is_fenced, _guests_die, steps=3.0, showed_in=507),
)
