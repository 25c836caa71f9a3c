"""What a commit is answered, batch by batch; pure: no log, no store, only state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diskless_core.coordinator.slices import at_once
from diskless_core.diskless import operations, producer_state
from diskless_core.diskless.commands import BatchResult, PartitionKey
from diskless_core.diskless.tables import FILES, PARTITIONS, PRODUCERS, TOPICS
from diskless_core.protocol.errors import ErrorCode
from tests.support.guarantees import guarantee
from tests.support.shard_desk import EXPIRATION_MS, NOW_MS, Desk
from tests.support.shards import OTHER_TOPIC, TOPIC, batch, commit_of

OK = ErrorCode.NONE


@pytest.fixture
def desk() -> Desk:
    return Desk()


def answers(results: list[BatchResult]) -> list[tuple[ErrorCode, int]]:
    return [(result.error, result.base_offset) for result in results]


@guarantee("Offsets", "A batch for a topic or a partition that is not there is refused, and those beside it are not.")
def test_each_batch_is_answered_on_its_own_in_the_order_of_the_request(desk: Desk) -> None:
    results = desk.commit(
        batch(1, count=2),
        batch(0, topic=OTHER_TOPIC),
        batch(0, count=3),
        batch(7),
        batch(1),
        batch(0),
    )
    assert answers(results) == [
        (OK, 0),
        (ErrorCode.UNKNOWN_TOPIC_ID, -1),
        (OK, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (OK, 2),
        (OK, 3),
    ]
    assert [result.append_time for result in results] == [NOW_MS, -1, NOW_MS, -1, NOW_MS, NOW_MS]
    assert (desk.next_offset(0), desk.next_offset(1)) == (4, 3)


@guarantee("Offsets", "A commit without batches changes nothing.")
def test_an_empty_commit_changes_nothing(desk: Desk) -> None:
    assert desk.commit() == []
    assert desk.records == []


@guarantee(
    "Offsets",
    "The same commit sent again gets its first answer and changes nothing; another one of the same object is refused.",
)
def test_the_same_commit_again_is_answered_as_the_first_time_and_changes_nothing(desk: Desk) -> None:
    desk.commit(batch(producer=(7, 0, 0)))
    request = commit_of("same", batch(producer=(7, 0, 1)), batch(9), batch(producer=(7, 0, 0)), batch(1, count=2))
    first = desk.send(request)
    desk.now_ms += 10_000
    desk.commit(batch(0), batch(1))
    assert desk.send(request) == first
    assert desk.records == []


def test_the_same_commit_again_is_answered_as_the_first_time_even_after_its_topic_went(desk: Desk) -> None:
    request = commit_of("same", batch())
    first = desk.send(request)
    desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC)))
    assert desk.send(request) == first


@guarantee(
    "Offsets",
    "The same commit sent again gets its first answer and changes nothing; another one of the same object is refused.",
)
@pytest.mark.parametrize(
    "change",
    [
        lambda request: replace(request, file_size=request.file_size + 1),
        lambda request: replace(request, batches=request.batches[:1]),
        lambda request: replace(request, batches=request.batches[::-1]),
        lambda request: replace(request, batches=[*request.batches[:1], request.batches[1]._replace(size=1)]),
    ],
)
def test_another_commit_of_the_same_object_is_refused_whole(desk: Desk, change) -> None:
    request = commit_of("same", batch(), batch(count=2))
    desk.send(request)
    other = change(request)
    assert desk.send(other) == [BatchResult(ErrorCode.INVALID_REQUEST)] * len(other.batches)
    assert desk.next_offset() == 3


@guarantee("Offsets", "An object all of whose batches were refused is never committed later, and is deleted.")
def test_an_object_that_was_wholly_refused_stays_so(desk: Desk) -> None:
    request = commit_of("refused", batch(5), batch(0, topic=OTHER_TOPIC))
    refused = desk.send(request)
    assert {result.error for result in refused} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
    desk.run(lambda command: operations.create_partitions(command, TOPIC, "t", [5]))
    desk.run(lambda command: operations.create_partitions(command, OTHER_TOPIC, "u", [0]))
    assert desk.send(request) == refused
    assert desk.next_offset(5) == 0
    assert desk.state.get(FILES, ("refused",)) is not None


def test_a_duplicate_in_the_same_object_gets_the_offset_of_its_twin(desk: Desk) -> None:
    desk.commit(batch(count=10))
    results = desk.commit(
        batch(count=2, producer=(7, 0, 0)),
        batch(count=1),
        batch(count=2, producer=(7, 0, 0)),
        batch(count=1, producer=(7, 0, 2)),
    )
    assert answers(results) == [(OK, 10), (OK, 12), (OK, 10), (OK, 13)]
    assert [result.is_duplicate for result in results] == [False, False, True, False]
    assert desk.next_offset() == 14


def test_a_duplicate_of_an_earlier_object_gets_its_original_offset_and_time(desk: Desk) -> None:
    [original] = desk.commit(batch(count=2, producer=(7, 0, 0)))
    desk.now_ms += 100
    [again] = desk.commit(batch(count=2, producer=(7, 0, 0)))
    assert again == original._replace(is_duplicate=True)
    assert desk.next_offset() == 2


def test_the_same_sequences_of_two_epochs_in_one_object_are_not_mixed_up(desk: Desk) -> None:
    results = desk.commit(
        batch(producer=(7, 0, 0)), batch(producer=(7, 1, 0)), batch(producer=(7, 1, 0)), batch(producer=(7, 0, 0))
    )
    assert answers(results) == [(OK, 0), (OK, 1), (OK, 1), (ErrorCode.INVALID_PRODUCER_EPOCH, -1)]


def test_a_gap_refuses_that_batch_and_what_relies_on_it_and_nothing_else(desk: Desk) -> None:
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    results = desk.commit(
        batch(producer=(7, 0, 0)), batch(producer=(7, 0, 5)), batch(producer=(8, 0, 0)), batch(producer=(7, 0, 1))
    )
    assert answers(results) == [(OK, 0), (out_of_order, -1), (OK, 1), (OK, 2)]


def test_a_refused_batch_leaves_no_state_of_its_producer(desk: Desk) -> None:
    desk.commit(batch(5, producer=(7, 3, 0)))
    assert dict(desk.state.rows(PRODUCERS)) == {}
    desk.commit(batch(0, producer=(7, 0, 0)))
    desk.commit(batch(0, producer=(7, 1, 9)))
    assert answers(desk.commit(batch(0, producer=(7, 0, 1)))) == [(OK, 1)]


def test_producers_are_known_for_each_partition_apart(desk: Desk) -> None:
    desk.commit(batch(0, producer=(7, 0, 0)))
    assert answers(desk.commit(batch(1, producer=(7, 0, 1)))) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert answers(desk.commit(batch(1, producer=(7, 0, 0)))) == [(OK, 0)]
    assert answers(desk.commit(batch(1, producer=(7, 0, 1)))) == [(OK, 1)]


def test_a_producers_second_batch_waits_for_its_first_which_comes_by_another_broker(desk: Desk) -> None:
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    first, second = batch(count=12, producer=(7, 0, 0)), batch(count=3, producer=(7, 0, 12))
    assert answers(desk.commit(second)) == [(out_of_order, -1)]
    assert answers(desk.commit(first)) == [(OK, 0)]
    assert answers(desk.commit(second)) == [(OK, 12)]


def test_a_producer_goes_on_in_a_new_topic_where_an_earlier_one_was_deleted(desk: Desk) -> None:
    desk.commit(batch(producer=(7, 0, 0)))
    desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC)))
    desk.run(lambda command: operations.create_partitions(command, OTHER_TOPIC, "t", [0]))
    assert answers(desk.commit(batch(topic=OTHER_TOPIC, producer=(7, 0, 1)))) == [(OK, 0)]
    assert answers(desk.commit(batch(topic=OTHER_TOPIC, producer=(8, 0, 1)))) == [
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    ]


def test_a_producers_first_batch_is_waited_for_where_another_topic_was_deleted(desk: Desk) -> None:
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    desk.run(lambda command: operations.create_partitions(command, OTHER_TOPIC, "other", [0]))
    desk.commit(batch(producer=(7, 0, 0)))
    desk.run(lambda command: at_once(operations.delete_topic(command, OTHER_TOPIC)))
    first, second = batch(1, count=12, producer=(7, 0, 0)), batch(1, count=3, producer=(7, 0, 12))
    assert answers(desk.commit(second)) == [(out_of_order, -1)]
    assert answers(desk.commit(first)) == [(OK, 0)]
    assert answers(desk.commit(second)) == [(OK, 12)]


def test_a_producer_goes_on_in_a_new_topic_that_was_there_before_the_earlier_one_was_deleted(desk: Desk) -> None:
    desk.commit(batch(producer=(7, 0, 0)))
    desk.run(lambda command: operations.create_partitions(command, OTHER_TOPIC, "t", [0]))
    desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC)))
    assert answers(desk.commit(batch(topic=OTHER_TOPIC, producer=(7, 0, 1)))) == [(OK, 0)]


def test_who_was_never_forgotten_begins_at_0_whoever_else_was(desk: Desk) -> None:
    desk.commit(batch(producer=(7, 0, 0)))
    desk.now_ms += EXPIRATION_MS
    desk.expire_producers()
    results = desk.commit(batch(producer=(8, 0, 5)), batch(producer=(7, 0, 5)))
    assert answers(results) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (OK, 1)]


@guarantee(
    "Idempotence",
    "A producer that was silent for producer.id.expiration.ms is forgotten at the next check, and may start anew.",
)
def test_the_state_of_a_silent_producer_expires(desk: Desk) -> None:
    desk.commit(batch(producer=(7, 3, 0)))
    desk.now_ms += EXPIRATION_MS
    assert answers(desk.commit(batch(producer=(7, 3, 9)))) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    desk.now_ms -= 1
    desk.expire_producers()
    assert (len(dict(desk.state.rows(PRODUCERS))), desk.records) == (1, [])
    desk.now_ms += 1
    desk.expire_producers()
    assert dict(desk.state.rows(PRODUCERS)) == {}
    assert answers(desk.commit(batch(producer=(7, 2, 9)))) == [(OK, 1)]


def test_a_producer_that_wrote_again_meanwhile_is_not_forgotten(desk: Desk) -> None:
    desk.commit(batch(producer=(7, 0, 0)), batch(producer=(8, 0, 0)))
    desk.now_ms += EXPIRATION_MS
    desk.commit(batch(producer=(8, 0, 1)))
    desk.expire_producers()
    [(key, window)] = desk.state.rows(PRODUCERS)
    assert (key, len(producer_state.batches_of(window))) == ((TOPIC, 0, 8), 2)


def test_the_state_of_producers_goes_with_their_topic(desk: Desk) -> None:
    desk.run(lambda command: operations.create_partitions(command, OTHER_TOPIC, "u", [0]))
    desk.commit(batch(producer=(7, 0, 0)), batch(0, topic=OTHER_TOPIC, producer=(7, 0, 0)))
    assert desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC))) is OK
    desk.expire_producers()
    assert [key[0] for key, _ in desk.state.rows(PRODUCERS)] == [OTHER_TOPIC]
    assert [key for key, _ in desk.state.rows(TOPICS)] == [(OTHER_TOPIC,)]
    assert desk.run(lambda command: at_once(operations.delete_topic(command, TOPIC))) is ErrorCode.UNKNOWN_TOPIC_ID
    assert answers(desk.commit(batch())) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]


def test_creating_partitions_again_leaves_those_that_are_there_as_they_are(desk: Desk) -> None:
    desk.commit(batch(0))
    desk.run(lambda command: operations.create_partitions(command, TOPIC, "t", [0, 1, 2]))
    assert [record.partitions for record in desk.records] == [[2]]
    assert desk.next_offset(0) == 1


def test_a_partition_that_a_request_names_twice_is_created_once(desk: Desk) -> None:
    desk.run(lambda command: operations.create_partitions(command, OTHER_TOPIC, "u", [4, 2, 4, 2, 4]))
    assert desk.state.get(TOPICS, (OTHER_TOPIC,)).partitions == (4, 2)
    desk.run(lambda command: operations.create_partitions(command, OTHER_TOPIC, "u", [2, 2, 4]))
    assert desk.records == []


def test_the_head_knows_the_latest_timestamp_and_a_batch_on_broker_time_has_the_commits(desk: Desk) -> None:
    desk.commit(batch(max_timestamp=50), batch(max_timestamp=20))
    desk.commit(batch(max_timestamp=40))
    assert latest(desk) == 50
    desk.commit(batch(max_timestamp=5000, timestamp_type=1))
    assert latest(desk) == NOW_MS


def latest(desk: Desk) -> int:
    head = desk.state.get(PARTITIONS, PartitionKey(TOPIC, 0))
    assert head is not None
    return head.max_timestamp
