"""Topics over the wire: Metadata, DescribeTopicPartitions, CreateTopics, DeleteTopics."""

from __future__ import annotations

import uuid

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeTopicPartitionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of, read_values
from tests.support.guarantees import guarantee
from tests.support.requests import (
    append,
    create_topic,
    create_topics,
    delete_topic,
    fetch,
    metadata_request,
    new_topic,
    produce,
)

pytestmark = pytest.mark.in_a_cluster_too

INVALID_TOPIC = int(ErrorCode.INVALID_TOPIC_EXCEPTION)


def metadata_by_id(wire, topic_id):
    asked = MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id)
    return wire.call(MetadataRequest(topics=[asked], allow_auto_topic_creation=False), 12).topics[0]


# --- Metadata --------------------------------------------------------------------------------------------------------


@pytest.mark.one_broker
def test_metadata_names_this_broker_as_leader_of_every_partition(broker, wire, topic):
    topic_id = create_topic(wire, topic, 3)

    response = wire.call(metadata_request(topic), 12)

    [node] = response.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert response.controller_id == node.node_id
    assert response.cluster_id
    [described] = response.topics
    assert (described.error_code, described.name, described.topic_id, described.is_internal) == (
        0,
        topic,
        topic_id,
        False,
    )
    assert [
        (p.partition_index, p.error_code, p.leader_id, p.leader_epoch, list(p.replica_nodes), list(p.isr_nodes))
        for p in described.partitions
    ] == [(index, 0, node.node_id, 0, [node.node_id], [node.node_id]) for index in range(3)]


def test_metadata_by_id(wire, topic):
    topic_id = create_topic(wire, topic)

    known = metadata_by_id(wire, topic_id)
    unknown_id = uuid.uuid4()
    unknown = metadata_by_id(wire, unknown_id)

    assert (known.error_code, known.name, known.topic_id) == (0, topic, topic_id)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (
        int(ErrorCode.UNKNOWN_TOPIC_ID),
        None,
        unknown_id,
    )


@pytest.mark.parametrize(("version", "asked"), [(0, []), (1, None), (9, None), (13, None)])
def test_metadata_lists_all_topics_when_asked_for_none_in_particular(wire, topic, version, asked):
    create_topic(wire, topic)

    response = wire.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version)

    assert topic in {entry.name for entry in response.topics}


@pytest.mark.one_broker
@pytest.mark.parametrize("version", [1, 9, 13])
def test_metadata_of_an_empty_list_is_the_brokers_alone(wire, topic, version):
    create_topic(wire, topic)

    response = wire.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), version)

    assert response.topics == []
    assert len(response.brokers) == 1


def test_metadata_creates_a_topic_where_the_client_allows_it(wire, topic):
    absent = wire.call(metadata_request(topic), 12).topics[0]
    created = wire.call(metadata_request(topic, create=True), 12).topics[0]

    assert (absent.error_code, absent.topic_id) == (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None)
    assert (created.error_code, len(created.partitions)) == (0, 1)
    assert append(wire, topic, batch_of(b"v")) == [0]


def test_metadata_of_versions_before_4_always_creates(wire, topic):
    assert wire.call(metadata_request(topic), 3).topics[0].error_code == 0


def test_many_questions_at_once_create_a_topic_once(broker, topic):
    clients = [broker.connect() for _ in range(8)]
    try:
        for client in clients:
            client.send(metadata_request(topic, create=True), 12)
        answers = [client.receive().topics[0] for client in clients]
    finally:
        for client in clients:
            client.close()

    assert {answer.error_code for answer in answers} == {0}
    assert len({answer.topic_id for answer in answers}) == 1


@pytest.mark.parametrize("name", ["bad name", "..", "", "ü", "x" * 250])
def test_metadata_creates_no_topic_of_an_illegal_name(wire, name):
    assert wire.call(metadata_request(name, create=True), 12).topics[0].error_code == INVALID_TOPIC


def test_no_topic_is_created_where_the_broker_forbids_it(new_broker, topic):
    broker = new_broker({"auto.create.topics.enable": "false"})
    with broker.connect() as wire:
        answer = wire.call(metadata_request(topic, create=True), 12).topics[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produce(wire, topic, batch_of(b"v")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- DescribeTopicPartitions -----------------------------------------------------------------------------------------


def described_pages(wire, names, limit):
    """Follow the cursor from page to page."""
    cursor, pages = None, []
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        response = wire.call(request, 0)
        pages.append([(t.name, [p.partition_index for p in t.partitions]) for t in response.topics])
        if response.next_cursor is None:
            return pages
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )


def test_topics_are_described_page_by_page_in_order_of_their_names(wire, topic):
    first, second = f"{topic}-a", f"{topic}-b"
    create_topic(wire, first, 3)
    create_topic(wire, second, 2)

    assert described_pages(wire, [second, first], 2) == [
        [(first, [0, 1])],
        [(first, [2]), (second, [0])],
        [(second, [1])],
    ]
    assert described_pages(wire, [second, first], 3) == [[(first, [0, 1, 2])], [(second, [0, 1])]]
    assert described_pages(wire, [second, first], 2000) == [[(first, [0, 1, 2]), (second, [0, 1])]]


def test_the_eligible_leader_replicas_of_a_partition_are_an_empty_list(wire, topic):
    """Kafka's AdminClient reads both lists without asking whether they are null."""
    create_topic(wire, topic)

    response = wire.call(
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)], response_partition_limit=1, cursor=None
        ),
        0,
    )

    [partition] = response.topics[0].partitions
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


def test_describing_no_topic_in_particular_describes_all(wire, topic):
    create_topic(wire, topic, 2)

    described = [
        (name, index) for page in described_pages(wire, [], 2000) for name, indexes in page for index in indexes
    ]

    assert {(topic, 0), (topic, 1)} <= set(described)
    assert described == sorted(described)


def test_unknown_topics_are_described_with_an_error(wire, topic):
    names = [f"{topic}-absent", "bad name"]
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=10,
        cursor=None,
    )

    answers = {entry.name: entry.error_code for entry in wire.call(request, 0).topics}

    assert answers == {names[0]: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "bad name": INVALID_TOPIC}


# --- CreateTopics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\0b"])
def test_illegal_names_are_refused(wire, name):
    [answer] = create_topics(wire, new_topic(name))

    assert answer.error_code == INVALID_TOPIC
    assert "Topic name" in answer.error_message


@pytest.mark.parametrize("suffix", ["x" * 200, "A.b-c", "_"])
def test_legal_names_are_taken(wire, topic, suffix):
    assert create_topics(wire, new_topic(topic + suffix))[0].error_code == 0


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "code"),
    [
        (0, -1, ErrorCode.INVALID_PARTITIONS),
        (-2, -1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (-1, -1, ErrorCode.NONE),
        (5, 1, ErrorCode.NONE),
    ],
)
def test_counts_are_checked(wire, topic, partitions, replication_factor, code):
    [answer] = create_topics(wire, new_topic(topic, partitions, replication_factor=replication_factor))

    assert answer.error_code == code
    if code is ErrorCode.NONE:
        assert (answer.num_partitions, answer.replication_factor) == (max(partitions, 1), 1)


@pytest.mark.parametrize(
    ("configs", "hint"),
    [
        ({"retention.mss": "1"}, "retention.mss"),
        ({"retention.ms": "soon"}, "soon"),
        ({"retention.ms": "-2"}, "-2"),
        ({"message.timestamp.type": "Never"}, "Never"),
        ({"max.message.bytes": None}, "max.message.bytes"),
        ({"cleanup.policy": "compact"}, "compact"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(wire, topic, configs, hint):
    [answer] = create_topics(wire, new_topic(topic, 1, configs))

    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert hint in answer.error_message
    assert wire.call(metadata_request(topic), 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_are_in_the_answer(wire, topic):
    [answer] = create_topics(wire, new_topic(topic, 1, {"retention.ms": "1000", "max.message.bytes": "5"}))

    own = {entry.name: entry.value for entry in answer.configs if entry.config_source == 1}
    assert own == {"retention.ms": "1000", "max.message.bytes": "5"}
    assert {entry.name: entry.value for entry in answer.configs}["cleanup.policy"] == "delete"


def test_validate_only_creates_nothing_and_finds_what_creating_would(wire, topic):
    [fine] = create_topics(wire, new_topic(topic, 3), validate_only=True)
    [bad] = create_topics(wire, new_topic(topic, 0), validate_only=True)
    absent = wire.call(metadata_request(topic), 12).topics[0]
    create_topic(wire, topic)
    [exists] = create_topics(wire, new_topic(topic), validate_only=True)

    assert (fine.error_code, fine.num_partitions) == (0, 3)
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert exists.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_existing_topic_is_not_created_again(wire, topic):
    topic_id = create_topic(wire, topic, 2)

    [answer] = create_topics(wire, new_topic(topic, 5))

    assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert topic in answer.error_message
    assert len(metadata_by_id(wire, topic_id).partitions) == 2


def test_a_name_that_is_twice_in_a_request_is_refused_and_the_others_are_created(wire, topic):
    twice, once = f"{topic}-twice", f"{topic}-once"

    answers = create_topics(wire, new_topic(twice), new_topic(once), new_topic(twice))

    assert {answer.name: answer.error_code for answer in answers} == {twice: int(ErrorCode.INVALID_REQUEST), once: 0}
    assert wire.call(metadata_request(twice), 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_that_differ_in_dots_and_underscores_only_collide(wire, topic):
    create_topic(wire, f"{topic}.a_b")

    [collides] = create_topics(wire, new_topic(f"{topic}_a.b"))

    assert collides.error_code == INVALID_TOPIC
    assert f"{topic}.a_b" in collides.error_message
    assert create_topics(wire, new_topic(f"{topic}-a-b"))[0].error_code == 0


def manual(topic, assignments, partitions=-1):
    request = new_topic(topic, partitions)
    request.assignments = [
        CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in assignments
    ]
    return request


@pytest.mark.parametrize(
    ("assignments", "partitions", "code"),
    [
        ([(0, [1]), (1, [1])], -1, ErrorCode.NONE),
        ([(0, [1])], 1, ErrorCode.INVALID_REQUEST),
        ([(0, [1]), (2, [1])], -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (0, [1])], -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [99])], -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_manual_assignments(wire, topic, assignments, partitions, code):
    assert create_topics(wire, manual(topic, assignments, partitions))[0].error_code == code


@guarantee("Deletion and retention", "No topic gets a reserved id, or one whose text begins with a dash.")
def test_topic_ids_are_not_reserved_and_do_not_look_like_options(wire, topic):
    ids = [create_topic(wire, f"{topic}-{number}") for number in range(20)]

    assert len(set(ids)) == 20
    assert all(topic_id.int > 1 for topic_id in ids)


# --- DeleteTopics ----------------------------------------------------------------------------------------------------


def test_a_topic_is_deleted_by_name_and_by_id(wire, topic):
    first, second = f"{topic}-a", f"{topic}-b"
    create_topic(wire, first)
    by_id = create_topic(wire, second)
    states = [
        DeleteTopicsRequest.DeleteTopicState(name=first, topic_id=None),
        DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=by_id),
        DeleteTopicsRequest.DeleteTopicState(name=f"{topic}-absent", topic_id=None),
        DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=uuid.UUID(int=12345)),
        DeleteTopicsRequest.DeleteTopicState(name=first, topic_id=by_id),
    ]

    answers = wire.call(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6).responses

    assert [answer.error_code for answer in answers] == [
        0,
        0,
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        int(ErrorCode.UNKNOWN_TOPIC_ID),
        int(ErrorCode.INVALID_REQUEST),
    ]
    assert [answer.name for answer in answers[:3]] == [first, second, f"{topic}-absent"]
    listed = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12).topics
    assert not {first, second} & {entry.name for entry in listed}


def test_a_topic_of_the_same_name_starts_anew(wire, topic):
    create_topic(wire, topic, 3, message_timestamp_type="LogAppendTime")
    append(wire, topic, batch_of(b"old", b"old"))

    assert delete_topic(wire, topic) == 0
    create_topic(wire, topic, 1)

    assert append(wire, topic, batch_of(b"new")) == [0]
    fetched = fetch(wire, topic, 0)
    assert read_values(fetched.records) == [b"new"]
    assert produce(wire, topic, batch_of(b"new")).log_append_time_ms == -1
    assert produce(wire, topic, batch_of(b"new"), 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_and_their_settings_survive_a_kill(new_broker, topic):
    broker = new_broker()
    with broker.connect() as wire:
        kept = create_topic(wire, f"{topic}-kept", 3, max_message_bytes="200")
        create_topic(wire, f"{topic}-gone")
        assert delete_topic(wire, f"{topic}-gone") == 0
        cluster_id = wire.call(metadata_request(), 12).cluster_id
    broker.kill()
    broker.start()
    with broker.connect() as wire:
        response = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        assert [(entry.topic_id, len(entry.partitions)) for entry in response.topics] == [(kept, 3)]
        assert response.cluster_id == cluster_id
        refused = produce(wire, f"{topic}-kept", batch_of(b"v" * 300))
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


# --- coordinators and producer ids -----------------------------------------------------------------------------------


@pytest.mark.one_broker
def test_find_coordinator_gives_this_broker_for_groups_and_ends_the_search_for_transactions(broker, wire):
    found = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", ""]), 6).coordinators
    refused = wire.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 6).coordinators[0]

    addresses = [f"{answer.host}:{answer.port}" for answer in found]
    assert addresses == [broker.bootstrap] * 3
    assert [answer.error_code for answer in found] == [0, 0, 0]
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [("t", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ("", ErrorCode.INVALID_REQUEST)],
)
def test_init_producer_id_refuses_transactions(wire, transactional_id, code):
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )

    response = wire.call(request, 5)

    assert (response.error_code, response.producer_id) == (int(code), -1)
