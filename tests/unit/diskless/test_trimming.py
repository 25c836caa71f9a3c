"""What trimming leaves in a store, however it was interleaved with flushes, deletions and a rebuild from the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.coordinator.readers import Prefetched
from diskless_core.coordinator.slices import at_once
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import State, Table, Transaction
from diskless_core.diskless import file_operations, operations, trimming
from diskless_core.diskless.commands import HandOver, PartitionKey
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.records import DisklessRecord
from diskless_core.diskless.run_lookup import stored_runs
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import (
    BATCHES,
    DEAD_FILES,
    FILES,
    GONE_FILES,
    LIVE_FILES,
    PARTITIONS,
    RECEIVED_FILES,
    TRIMS,
    PartitionHead,
)
from diskless_core.diskless.trimming import Trimmed, trim_page
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import OTHER_TOPIC, SHARD_ID, TOPIC, Sequential, batch, commit_of

TOPICS = (TOPIC, OTHER_TOPIC)
PARTITIONS_EACH = 2
RULES = CommitRules(assignment=Sequential())
PAGE = 3

MACHINE = DisklessMachine()


class Replica:
    """State and store of one node, without a log: records come in, pages go out."""

    def __init__(self) -> None:
        self.state = State(MACHINE.tables)
        self.store = MemoryCoordinatorStore().open(SHARD_ID, [table.spec for table in MACHINE.tables])
        self.now_ms = 1000

    def run(self, operation: Any, *prefetch: tuple[Table[Any], Any]) -> list[DisklessRecord]:
        fetched = {}
        for table, key in prefetch:
            row = self.store.get(table.name, key)
            fetched[table, key] = table.entity(row)[1] if row is not None else None
        tx = Transaction(Prefetched(self.state, fetched))
        command: Command[DisklessRecord] = Command(machine=MACHINE, tx=tx, now_ms=self.now_ms)
        operation(command)
        self.state.commit(command.tx.writes)
        return command.records

    def replay(self, record: DisklessRecord) -> None:
        tx = Transaction(self.state)
        MACHINE.replay(record, tx)
        self.state.commit(tx.writes)

    def flush(self) -> None:
        self.state.close_page(0)
        while (page := self.state.oldest_page()) is not None:
            self.store.write(page.changes(), self.store.applied_offset() + 1)
            self.state.page_stored()

    def trim_page(self) -> Trimmed:
        self.now_ms += 1
        return trim_page(self.store, self.now_ms)

    def trim_all(self) -> None:
        self.flush()
        while self.trim_page().more:
            pass

    def head(self, partition: PartitionKey) -> PartitionHead | None:
        return self.state.committed(PARTITIONS, partition)

    def rows(self, table: Table[Any]) -> list[Any]:
        return self.store.scan(table.name)

    def keys(self, table: Table[Any]) -> set[str]:
        return {row[0] for row in self.rows(table)}

    def runs_by_object(self) -> Counter[str]:
        return Counter(BATCHES.decode(row).object_key for row in self.rows(BATCHES))

    def content(self) -> dict[str, list[Any]]:
        """Everything but the times of death, which each replica notices for itself."""
        found = {table.name: self.rows(table) for table in MACHINE.tables}
        return found | {DEAD_FILES.name: sorted(self.keys(DEAD_FILES))}


class Shard:
    """A leader's replica, its log, and what every partition should still have."""

    def __init__(self) -> None:
        self.leader = Replica()
        self.log: list[DisklessRecord] = []
        self.appended: dict[PartitionKey, list[tuple[int, str]]] = {}
        self.objects = 0
        for topic in TOPICS:
            self.do(lambda command, topic=topic: operations.create_partitions(command, topic, "t", range(2)))
            self.appended |= {PartitionKey(topic, partition): [] for partition in range(PARTITIONS_EACH)}

    def do(self, operation: Any, *prefetch: tuple[Table[Any], Any]) -> list[DisklessRecord]:
        records = self.leader.run(operation, *prefetch)
        self.log += records
        return records

    def commit(self, parts: list[int]) -> None:
        """One object with a batch for each part, apart from each other, so that each is a run."""
        self.objects += 1
        key = f"object-{self.objects:03}"
        places = [PartitionKey(TOPICS[part % 3 % 2], part // 3 % 3) for part in parts]
        request = commit_of(key, *(batch(place.partition, topic=place.topic_id, count=2) for place in places))
        apart = [one._replace(byte_offset=one.byte_offset + 7 * index) for index, one in enumerate(request.batches)]
        request = replace(request, batches=apart)
        if not self.do(lambda command: at_once(operations.commit_file(command, request, RULES)), (FILES, (key,))):
            return  # it was handed over before
        for place in places:
            runs = self.appended.get(place)
            if runs is not None and self.leader.head(place) is not None:
                runs.append((runs[-1][0] + 2 if runs else 1, key))

    def delete_records(self, which: int, offset: int) -> None:
        partition = list(self.appended)[which % len(self.appended)]
        head = self.leader.head(partition)
        if head is None or offset > head.next_offset:
            return
        kept = [index for index, (last_offset, _) in enumerate(self.appended[partition]) if last_offset >= offset]
        before = kept[0] if kept else len(self.appended[partition])
        self.do(
            lambda command: operations.delete_records(
                command, partition, offset, max(100 * before, head.log_start_bytes)
            )
        )

    def delete_topic(self, topic: bytes) -> None:
        self.do(lambda command: at_once(operations.delete_topic(command, topic)))

    def receive(self, number: int) -> None:
        """Another shard hands an object over, be it live here, dead, or unknown."""
        files = [HandOver(f"object-{number:03}", (1, 0, 2), 5, self.leader.now_ms)]
        self.do(
            lambda command: file_operations.receive_files(command, 0, files), *file_operations.rows_to_receive(files)
        )

    def hand_over_dead(self) -> None:
        """As when the next owner has confirmed that it has them."""
        keys = sorted(self.leader.keys(DEAD_FILES))
        self.do(
            lambda command: file_operations.files_handed_over(command, keys, 2), *file_operations.rows_to_leave(keys)
        )

    def forget_dead(self) -> None:
        """As when the object store has confirmed that they are gone, and nobody asks again."""
        keys = sorted(self.leader.keys(DEAD_FILES))
        self.do(lambda command: file_operations.files_deleted(command, keys), *file_operations.rows_to_leave(keys))
        self.do(lambda command: file_operations.forget_files(command, keys), *file_operations.rows_to_forget(keys))

    def live(self) -> Counter[str]:
        """How many runs of each object somebody can still read."""
        live: Counter[str] = Counter()
        for partition, runs in self.appended.items():
            head = self.leader.head(partition)
            if head is not None:
                live.update(key for last_offset, key in runs if last_offset >= head.log_start_offset)
        return live


steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(st.integers(0, 8), min_size=1, max_size=5)),
        st.tuples(st.just("commit"), st.lists(st.integers(0, 8), min_size=1, max_size=5)),
        st.tuples(st.just("delete_records"), st.integers(0, 3), st.integers(-1, 20)),
        st.tuples(st.just("delete_topic"), st.sampled_from(TOPICS)),
        st.just(("flush",)),
        st.just(("trim_page",)),
        st.just(("trim_all",)),
        st.tuples(st.just("receive"), st.integers(1, 12)),
        st.just(("hand_over_dead",)),
        st.just(("forget_dead",)),
    ),
    max_size=30,
)


def play(shard: Shard, script: list[Any]) -> None:
    for name, *arguments in script:
        getattr(shard if hasattr(shard, name) else shard.leader, name)(*arguments)
        assert_objects_are_counted(shard.leader)


def assert_objects_are_counted(replica: Replica) -> None:
    """At any time the store knows each object as live, with as many runs as it has, or as dead."""
    counted = {row[0]: LIVE_FILES.decode(row).live_runs for row in replica.rows(LIVE_FILES)}
    assert replica.runs_by_object() == counted
    assert not counted.keys() & replica.keys(DEAD_FILES)
    assert replica.keys(FILES) == counted.keys() | replica.keys(DEAD_FILES)
    assert replica.keys(FILES) >= replica.keys(RECEIVED_FILES) | replica.keys(GONE_FILES)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "PAGE_ROWS", PAGE)


@given(script=steps)
def test_what_is_left_is_what_can_still_be_read(script: list[Any]) -> None:
    shard = Shard()
    play(shard, script)
    shard.leader.trim_all()
    assert_objects_are_counted(shard.leader)
    assert shard.leader.runs_by_object() == shard.live()
    assert shard.leader.rows(TRIMS) == []


@given(script=steps, at=st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["flush", "trim_page"])), max_size=8))
def test_a_store_that_is_filled_again_from_the_log_comes_to_the_same(script: list[Any], at: list[Any]) -> None:
    shard = Shard()
    play(shard, script)
    shard.leader.trim_all()
    again = Replica()
    for position, record in enumerate(shard.log):
        for when, what in at:
            if when == position:
                getattr(again, what)()
        again.replay(record)
    again.trim_all()
    assert again.content() == shard.leader.content()


@given(script=steps, refused=st.integers(0, 20))
def test_a_write_that_took_effect_and_is_repeated_after_trimming_is_trimmed_again(
    script: list[Any], refused: int
) -> None:
    """The store took a flush, but nobody learned of it, so memory gives it the same rows once more."""
    shard = Shard()
    play(shard, script[:refused])
    shard.leader.store.write(shard.leader.state.close_page(0).changes(), shard.leader.store.applied_offset() + 1)
    while shard.leader.trim_page().more:
        pass
    for name, *arguments in script[refused:]:
        if name in ("commit", "delete_records", "delete_topic", "receive"):
            getattr(shard, name)(*arguments)
    shard.leader.trim_all()
    assert shard.leader.runs_by_object() == shard.live()
    assert {row[0]: LIVE_FILES.decode(row).live_runs for row in shard.leader.rows(LIVE_FILES)} == shard.live()


def test_an_object_that_was_forgotten_does_not_come_back_when_its_runs_are_trimmed_after_a_rebuild() -> None:
    shard = Shard()
    shard.commit([0, 1])
    shard.delete_records(0, -1)
    shard.delete_topic(OTHER_TOPIC)
    shard.leader.trim_all()
    shard.forget_dead()
    shard.leader.flush()
    assert shard.leader.keys(FILES) == set()
    again = Replica()
    for record in shard.log:
        again.replay(record)
        again.flush()
    assert again.runs_by_object() == {"object-001": 2}
    again.trim_all()
    assert again.content() == shard.leader.content()


def test_a_page_is_bounded_and_the_rest_comes_with_the_next() -> None:
    shard = Shard()
    for _ in range(2 * PAGE):
        shard.commit([0])
    shard.delete_records(0, -1)
    shard.leader.flush()
    assert [shard.leader.trim_page() for _ in range(4)] == [
        Trimmed(PAGE, PAGE, more=True),
        Trimmed(PAGE, PAGE, more=True),
        Trimmed(0, 0, more=True),
        Trimmed(0, 0, more=False),
    ]


def test_reading_goes_on_at_the_first_run_that_was_not_trimmed() -> None:
    shard = Shard()
    for _ in range(5):
        shard.commit([0])
    shard.delete_records(0, 5)
    shard.leader.flush()
    shard.leader.trim_page()
    found = stored_runs(shard.leader.store, PartitionKey(TOPIC, 0), 0)
    assert [run.base_offset for run in found] == [4, 6, 8]


def test_an_object_that_died_keeps_the_time_of_its_death() -> None:
    shard = Shard()
    shard.commit([0])
    shard.delete_records(0, -1)
    shard.leader.flush()
    shard.leader.trim_page()
    died_at = shard.leader.now_ms
    shard.commit([0])
    shard.delete_records(0, -1)
    shard.leader.trim_all()
    dead = {row[0]: DEAD_FILES.decode(row).dead_at for row in shard.leader.rows(DEAD_FILES)}
    assert dead["object-001"] == died_at < dead["object-002"]
