"""ListOffsets and OffsetForLeaderEpoch: special offsets, offsets by time, epochs."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import NOW_MS, batch_of, timed_batch
from tests.support.guarantees import guarantee
from tests.support.requests import append, create_topic, end_offset, list_offset

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
NEVER = 99
UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION)


def found(answer):
    assert answer.error_code == 0
    return answer.offset, answer.timestamp


@guarantee(
    "Reads",
    "A special offset that is newer than the request's version is refused: UNSUPPORTED_VERSION.",
)
@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("special", [*SINCE, -7, -8, -(2**62)])
def test_specials_older_than_the_version_that_brought_them_are_unsupported(wire, topic, special, version):
    create_topic(wire, topic)

    answer = list_offset(wire, topic, special, version=version)

    is_known = version >= SINCE.get(special, NEVER)
    assert answer.error_code == (0 if is_known else UNSUPPORTED_VERSION)
    if not is_known:
        assert (answer.offset, answer.timestamp) == (-1, -1)


@guarantee(
    "Reads",
    "A partition that was never written begins and ends at offset 0 and has no latest timestamp.",
)
def test_a_partition_never_written_has_offset_0_and_no_timestamp(wire, topic):
    create_topic(wire, topic)

    answers = {special: found(list_offset(wire, topic, special)) for special in SINCE}

    assert answers == {
        LATEST: (0, -1),
        EARLIEST: (0, -1),
        MAX_TIMESTAMP: (-1, -1),
        EARLIEST_LOCAL: (0, -1),
        LATEST_TIERED: (-1, -1),
        EARLIEST_PENDING_UPLOAD: (-1, -1),
    }


@guarantee(
    "Reads",
    "ListOffsets knows the latest offset (-1), the earliest (-2) and that of the latest timestamp (-3).",
)
@guarantee(
    "Reads",
    "Nothing is tiered: the earliest local offset (-4) is the earliest, none is tiered (-5) or on its way (-6).",
)
def test_specials_of_a_written_partition(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, timed_batch(NOW_MS, NOW_MS + 50, NOW_MS + 10), timed_batch(NOW_MS + 20))

    answers = {special: found(list_offset(wire, topic, special)) for special in SINCE}

    assert answers == {
        LATEST: (4, -1),
        EARLIEST: (0, -1),
        MAX_TIMESTAMP: (1, NOW_MS + 50),
        EARLIEST_LOCAL: (0, -1),
        LATEST_TIERED: (-1, -1),
        EARLIEST_PENDING_UPLOAD: (-1, -1),
    }


@guarantee("Reads", "Of several records with the latest timestamp, the first is listed.")
def test_of_several_records_with_the_latest_time_the_first_is_the_one(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, timed_batch(NOW_MS, NOW_MS + 9), timed_batch(NOW_MS + 9, NOW_MS + 9))

    assert found(list_offset(wire, topic, MAX_TIMESTAMP)) == (1, NOW_MS + 9)


@guarantee(
    "Reads",
    "By timestamp, ListOffsets answers with the first record at or after it, not with its batch; past the end with -1.",
)
@pytest.mark.parametrize("codec", range(5))
def test_by_time_the_answer_is_the_first_record_at_or_after_it_not_its_batch(wire, topic, codec):
    create_topic(wire, topic)
    times = [NOW_MS + 10 * number for number in range(40)]
    append(wire, topic, timed_batch(*times[:20], compression=codec), timed_batch(*times[20:], compression=codec))

    assert found(list_offset(wire, topic, 0)) == (0, times[0])
    for number in (0, 1, 7, 19, 20, 39):
        assert found(list_offset(wire, topic, times[number])) == (number, times[number])
        assert found(list_offset(wire, topic, times[number] - 1)) == (number, times[number])
    assert found(list_offset(wire, topic, times[-1] + 1)) == (-1, -1)


@guarantee(
    "Reads",
    "By timestamp, ListOffsets answers with the first record at or after it, not with its batch; past the end with -1.",
)
def test_by_time_the_first_record_counts_though_a_later_one_is_older(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, timed_batch(NOW_MS + 100), timed_batch(NOW_MS, NOW_MS + 50), timed_batch(NOW_MS + 200))

    assert found(list_offset(wire, topic, NOW_MS + 1)) == (0, NOW_MS + 100)
    assert found(list_offset(wire, topic, NOW_MS + 101)) == (3, NOW_MS + 200)


@guarantee("Reads", "With LogAppendTime, offsets are looked up by the time of the commit.")
def test_offsets_of_a_log_append_time_topic_are_those_of_the_commits(wire, topic):
    create_topic(wire, topic, message_timestamp_type="LogAppendTime")
    append(wire, topic, timed_batch(NOW_MS, NOW_MS + 1), timed_batch(NOW_MS))

    offset, timestamp = found(list_offset(wire, topic, NOW_MS + 1))

    assert offset == 0
    assert timestamp > NOW_MS + 1


@guarantee("Reads", "Each partition of a ListOffsets request is answered by itself.")
def test_answers_of_several_partitions_are_each_their_own(wire, topic):
    create_topic(wire, topic, 2)
    append(wire, topic, batch_of(b"v", b"w"), partition=1)
    asked = [
        ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
        )
        for partition, timestamp in [(1, LATEST), (5, LATEST), (0, EARLIEST)]
    ]
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=asked) for name in (topic, f"{topic}-absent")]

    response = wire.call(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics, timeout_ms=1000), 10)

    known, unknown = response.topics
    assert [(a.partition_index, a.error_code, a.offset) for a in known.partitions] == [
        (1, 0, 2),
        (5, 3, -1),
        (0, 0, 0),
    ]
    assert [answer.error_code for answer in unknown.partitions] == [3, 3, 3]


@guarantee("Reads", "There is one leader epoch, 0, which ends at the high watermark, whoever serves the partition.")
def test_list_offsets_names_leader_epoch_0(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"v"))

    assert list_offset(wire, topic, LATEST).leader_epoch == 0
    assert list_offset(wire, topic, NOW_MS + 1).leader_epoch == -1


@guarantee("Reads", "There is one leader epoch, 0, which ends at the high watermark, whoever serves the partition.")
def test_the_only_leader_epoch_ends_at_the_high_watermark(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"a", b"b", b"c"))

    assert end_offset(wire, topic, 0) == (0, 0, 3)
    assert end_offset(wire, topic, 0, current_leader_epoch=0) == (0, 0, 3)
    assert end_offset(wire, topic, 1) == (0, -1, -1)


@guarantee("Reads", "There is one leader epoch, 0, which ends at the high watermark, whoever serves the partition.")
def test_a_current_leader_epoch_from_the_future_and_unknown_partitions_are_errors(wire, topic):
    create_topic(wire, topic)

    assert end_offset(wire, topic, 0, current_leader_epoch=1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end_offset(wire, topic, 0, partition=3)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert end_offset(wire, f"{topic}-absent", 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
