"""A shard's log as people read it."""

from __future__ import annotations

import uuid

from diskless_core.coordinator import entries
from diskless_core.coordinator.description import IGNORABLE, UNREADABLE, LogDescriber
from diskless_core.coordinator.entries import Claim
from diskless_core.diskless import records
from diskless_core.diskless.records import PartitionsCreated, TopicDeleted
from diskless_core.groups.model import NO_TIMESTAMP, CommittedOffset
from diskless_core.groups.records import OffsetRecord
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.protocol.names import uuid_text
from diskless_core.protocol.record_batch import RecordData, read_header
from diskless_core.protocol.record_frames import GROUP_RECORDS
from tests.support.next_build import NOTE_KEY, ignorable_note

NOW_MS = 1_700_000_000_000
TOPIC = uuid.UUID(int=7)
CREATED = records.encode(PartitionsCreated(topic_id=TOPIC.bytes, name="orders", partitions=[3]))
DELETED = records.encode(TopicDeleted(topic_id=TOPIC.bytes))
CLAIM = Claim(node_id=1, claim_id=uuid.UUID(int=9))


class Log:
    """Puts entries at consecutive offsets."""

    def __init__(self, start=0, *, from_start=True):
        self.end = start
        self.describer = LogDescriber(from_start=from_start, keyed_records=GROUP_RECORDS)

    def add(self, data):
        offset = self.end
        self.end += read_header(data).record_count
        return self.describer.describe(LogBatch(offset, self.end, data))

    def claim(self):
        return self.add(entries.encode_claim(CLAIM, NOW_MS))

    def entry(self, term, sequence, *found):
        return self.add(entries.encode_entry(term, sequence, found, NOW_MS))


def test_a_claim_begins_the_term_of_its_own_offset():
    (claim,) = Log(start=5).claim()

    assert (claim.offset, claim.term, claim.sequence, claim.accepted) == (5, 5, None, True)
    assert claim.type == "CoordinatorClaimRecord"
    read = {"read_offset": 0, "read_term": -1, "read_sequence": 0}
    assert claim.data == {"broker_id": 1, "claim_id": uuid_text(CLAIM.claim_id), **read}


def test_the_records_of_an_entry_have_its_term_and_sequence_and_their_own_offsets():
    log = Log()
    log.claim()

    created, deleted = log.entry(0, 0, CREATED, DELETED)

    assert (created.offset, created.timestamp, created.term, created.sequence) == (2, NOW_MS, 0, 0)
    assert created.type == "DisklessPartitionsCreatedRecord"
    assert created.data == {"topic_id": uuid_text(TOPIC), "name": "orders", "partition_indexes": [3]}
    assert (deleted.offset, deleted.type) == (3, "DisklessTopicDeletedRecord")


def test_what_a_deposed_leader_wrote_is_shown_as_ignored():
    log = Log()
    log.claim()
    before = log.entry(0, 0, CREATED)
    log.claim()
    late = log.entry(0, 1, CREATED)
    skipped = log.entry(3, 1, CREATED)
    after = log.entry(3, 0, CREATED)

    assert [one.accepted for (one,) in (before, late, skipped, after)] == [True, False, False, True]


def test_from_the_middle_of_a_log_nothing_is_known_of_acceptance_before_the_first_claim():
    log = Log(start=100, from_start=False)
    before = log.entry(90, 4, CREATED)
    log.claim()
    after = log.entry(102, 0, CREATED)

    assert [one.accepted for (one,) in (before, after)] == [None, True]


def test_entries_that_cannot_be_read_are_shown_with_the_reason_and_those_after_them_too():
    log = Log()
    log.claim()
    odd = log.entry(0, 0, RecordData(key=None, value=b"\x01\xff\x7f\x00"))
    (headless,) = LogDescriber(from_start=True).describe(LogBatch(0, 1, b"no batch"))
    after = log.entry(0, 1, CREATED)

    assert [one.type for one in odd] == [UNREADABLE]
    assert not odd[0].is_readable
    assert "api key" in odd[0].data["error"]
    assert (headless.type, headless.term) == (UNREADABLE, None)
    assert after[0].accepted


def test_a_record_that_may_be_ignored_is_shown_whether_it_is_known_or_not():
    log = Log()
    log.claim()
    known = RecordData(key=None, value=b"\x02" + (DELETED.value or b"")[1:])
    deleted, unknown = log.entry(0, 0, known, ignorable_note("psst"))

    assert deleted.type == "DisklessTopicDeletedRecord"
    assert (unknown.type, unknown.data["api_key"], unknown.is_readable) == (IGNORABLE, NOTE_KEY, True)


def test_records_of_groups_have_key_and_value_and_a_deleted_one_only_the_key():
    value = CommittedOffset(
        topic_id=TOPIC,
        offset=12,
        leader_epoch=0,
        metadata="m",
        commit_timestamp_ms=NOW_MS,
        expire_timestamp_ms=NO_TIMESTAMP,
    )
    machine = GroupsMachine()
    written, gone = (
        machine.encode(OffsetRecord(group_id="g", topic="t", partition=0, value=one)) for one in (value, None)
    )
    log = Log()
    log.claim()

    committed, deleted = log.entry(0, 0, written, gone)

    assert committed.type == "OffsetCommitValue"
    assert committed.data["key"] == {"group": "g", "topic": "t", "partition": 0}
    assert (committed.data["value"]["offset"], committed.data["value"]["topic_id"]) == (12, uuid_text(TOPIC))
    assert (deleted.type, deleted.data["value"]) == ("OffsetCommitKey", None)
