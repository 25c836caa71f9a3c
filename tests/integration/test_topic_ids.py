"""Topic ids (KIP-516) over the wire: what each request with ids answers, and topics that come again by their name."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict

import pytest
from kafka.protocol.admin import DeleteTopicsRequest, DescribeTopicPartitionsRequest
from kafka.protocol.metadata import MetadataRequest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of, read_records, read_values
from tests.support.guarantees import guarantee
from tests.support.requests import (
    append,
    commit_offset,
    committed_offset,
    create_topic,
    create_topics,
    delete_topic,
    fetch,
    fetch_request,
    new_topic,
    produce_request,
)

pytestmark = pytest.mark.in_a_cluster_too

NONE = int(ErrorCode.NONE)
INVALID_REQUEST = int(ErrorCode.INVALID_REQUEST)
UNKNOWN_TOPIC_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
UNKNOWN_TOPIC = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NOBODYS_IDS = (None, uuid.UUID(int=1), uuid.UUID("ffffffff-ffff-ffff-ffff-ffffffffffff"))
"""The id zero, which kafka-python shows as None, the one of Kafka's metadata topic, and one that is not drawn."""

AskedTopic = MetadataRequest.MetadataRequestTopic
Doomed = DeleteTopicsRequest.DeleteTopicState


def metadata_of(wire, *asked, version=12, create=True):
    """Error, name and id of each topic that is answered, of (name, id) pairs that are asked for."""
    topics = [AskedTopic(name=name, topic_id=topic_id) for name, topic_id in asked]
    answer = wire.call(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
    return [(topic.error_code, topic.name, topic.topic_id) for topic in answer.topics]


def produce_by_id(wire, topic_id, batch=None):
    request = produce_request("", {0: batch or batch_of(b"v")}, topic_id=topic_id)
    [answer] = wire.call(request, 13).responses
    assert answer.topic_id == topic_id
    return answer.partition_responses[0]


def fetch_by_id(wire, topic_id, offset=0, *, version=18, **options):
    [answer] = wire.call(fetch_request("", {0: offset}, topic_id=topic_id, **options), version).responses
    assert answer.topic_id == topic_id
    return answer.partitions[0]


def described_id(wire, topic):
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)], response_partition_limit=10, cursor=None
    )
    return wire.call(request, 0).topics[0].topic_id


# --- one id, everywhere ----------------------------------------------------------------------------------------------


def test_a_topic_has_the_same_id_wherever_it_is_shown_and_after_every_start(new_broker, topic):
    broker = new_broker()
    with broker.connect() as wire:
        topic_id = create_topic(wire, topic)
    for restart in (broker.restart, broker.kill):
        restart()
        if not broker.is_running:
            broker.start()
        with broker.connect() as wire:
            for version in (10, 11, 12, 13):
                assert metadata_of(wire, (topic, None), version=version) == [(NONE, topic, topic_id)]
            assert metadata_of(wire, (None, topic_id)) == [(NONE, topic, topic_id)]
            assert described_id(wire, topic) == topic_id
            assert produce_by_id(wire, topic_id).error_code == NONE
            assert fetch_by_id(wire, topic_id).error_code == NONE


def test_a_topic_that_is_not_created_has_no_id(wire, topic):
    create_topic(wire, topic)

    assert [answer.topic_id for answer in create_topics(wire, new_topic(topic), new_topic("bad name"))] == [None, None]
    assert described_id(wire, f"{topic}-absent") is None


@pytest.mark.one_broker
@pytest.mark.parametrize("topic_id", NOBODYS_IDS)
def test_an_id_that_no_topic_has_is_unknown_to_every_request(wire, topic, topic_id):
    assert produce_by_id(wire, topic_id).error_code == UNKNOWN_TOPIC_ID
    for version in range(13, 19):
        assert fetch_by_id(wire, topic_id, version=version).error_code == UNKNOWN_TOPIC_ID
    group = f"group-of-{topic}"
    assert commit_offset(wire, group, "", 1, topic_id=topic_id, version=10) == UNKNOWN_TOPIC_ID
    assert committed_offset(wire, group, "", topic_id=topic_id, version=10) == (UNKNOWN_TOPIC_ID, -1)
    assert metadata_of(wire, (None, topic_id)) == [(UNKNOWN_TOPIC_ID, None, topic_id)]


# --- Metadata --------------------------------------------------------------------------------------------------------


def test_where_metadata_is_asked_by_id_names_do_not_count_and_each_topic_is_answered_once(wire, topic):
    first, second = f"{topic}-a", f"{topic}-b"
    first_id, second_id = create_topic(wire, first), create_topic(wire, second)
    unknown = uuid.uuid4()

    assert metadata_of(wire, (second, first_id)) == [(NONE, first, first_id)]
    assert metadata_of(wire, (f"{topic}-c", unknown)) == [(UNKNOWN_TOPIC_ID, None, unknown)]
    assert metadata_of(wire, (None, second_id), (f"{topic}-c", None), (None, second_id), (None, first_id)) == [
        (NONE, second, second_id),
        (NONE, first, first_id),
    ]
    listed = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12).topics
    assert f"{topic}-c" not in {entry.name for entry in listed}
    assert metadata_of(wire, (first, None), (first, None)) == [(NONE, first, first_id)]


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_is_an_invalid_request_before_version_12(wire, topic, version):
    topic_id = create_topic(wire, topic)

    assert metadata_of(wire, (topic, topic_id), version=version) == [(INVALID_REQUEST, topic, topic_id)]
    assert metadata_of(wire, (None, None), version=version) == [(INVALID_REQUEST, "", None)]
    assert metadata_of(wire, (None, topic_id), (topic, None), version=version) == [
        (INVALID_REQUEST, "", topic_id),
        (INVALID_REQUEST, topic, None),
    ]


# --- DeleteTopics ----------------------------------------------------------------------------------------------------


def deletions(wire, *asked, version=6):
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[name for name, _ in asked], timeout_ms=10_000)
    else:
        topics = [Doomed(name=name, topic_id=topic_id) for name, topic_id in asked]
        request = DeleteTopicsRequest(topics=topics, timeout_ms=10_000)
    answers = wire.call(request, version).responses
    return {(answer.name, answer.topic_id, answer.error_code) for answer in answers}


def test_what_does_not_say_clearly_which_topic_to_delete_is_refused_and_deletes_nothing(wire, topic):
    names = [f"{topic}-{letter}" for letter in "abcde"]
    ids = [create_topic(wire, name) for name in names]

    answers = deletions(
        wire,
        (None, None),
        (names[0], ids[0]),
        (names[1], None),
        (names[1], None),
        (None, ids[2]),
        (None, ids[2]),
        (None, ids[3]),
        (names[3], None),
        (names[4], None),
    )

    assert answers == {
        (None, None, INVALID_REQUEST),
        (names[0], ids[0], INVALID_REQUEST),
        (names[1], None, INVALID_REQUEST),
        (None, ids[2], INVALID_REQUEST),
        (names[3], ids[3], INVALID_REQUEST),
        (names[4], ids[4], NONE),
    }
    kept = [code for code, *_ in metadata_of(wire, *((None, topic_id) for topic_id in ids))]
    assert kept == [NONE] * 4 + [UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("version", [1, 5])
def test_a_name_that_is_twice_in_an_older_request_is_refused_too(wire, topic, version):
    create_topic(wire, topic)

    assert deletions(wire, (topic, None), (topic, None), version=version) == {(topic, None, INVALID_REQUEST)}
    assert deletions(wire, (topic, None), version=version) == {(topic, None, NONE)}


# --- topics that go while somebody uses them -------------------------------------------------------------------------


@pytest.mark.one_broker
@guarantee(
    "Deletion and retention",
    "A topic that is deleted and one that takes its name at once have nothing in common.",
)
@guarantee(
    "Deletion and retention",
    "Who asks by the id of a deleted topic is told UNKNOWN_TOPIC_ID, whoever has its name now.",
)
def test_nothing_of_a_deleted_topic_is_in_the_one_that_takes_its_name(wire, topic):
    group = f"group-of-{topic}"
    old = create_topic(wire, topic)
    append(wire, topic, batch_of(b"old", b"old"), batch_of(b"old"))
    assert commit_offset(wire, group, topic, 3) == NONE
    assert commit_offset(wire, f"{group}-too", "", 2, topic_id=old, version=10) == NONE

    assert delete_topic(wire, topic) == NONE
    assert committed_offset(wire, group, topic) == (NONE, -1)
    new = create_topic(wire, topic)

    assert new != old
    assert produce_by_id(wire, old).error_code == UNKNOWN_TOPIC_ID
    for version in range(13, 19):
        assert fetch_by_id(wire, old, version=version).error_code == UNKNOWN_TOPIC_ID
    assert commit_offset(wire, group, "", 3, topic_id=old, version=10) == UNKNOWN_TOPIC_ID
    assert committed_offset(wire, group, "", topic_id=old, version=10) == (UNKNOWN_TOPIC_ID, -1)
    assert metadata_of(wire, (None, old)) == [(UNKNOWN_TOPIC_ID, None, old)]
    assert deletions(wire, (None, old)) == {(None, old, UNKNOWN_TOPIC_ID)}
    for name in (group, f"{group}-too"):
        assert committed_offset(wire, name, topic) == (NONE, -1)
        assert committed_offset(wire, name, "", topic_id=new, version=10) == (NONE, -1)
    begin = fetch(wire, topic, 0)
    assert (begin.error_code, begin.high_watermark, read_values(begin.records)) == (NONE, 0, [])
    assert produce_by_id(wire, new, batch_of(b"new")).base_offset == 0
    assert read_values(fetch_by_id(wire, new).records) == [b"new"]


@guarantee("Deletion and retention", "What is not committed when its topic is deleted is refused.")
@pytest.mark.parametrize(("version", "code"), [(9, UNKNOWN_TOPIC), (13, UNKNOWN_TOPIC_ID)])
def test_what_is_not_committed_when_its_topic_is_deleted_is_refused_and_not_in_the_next_of_that_name(
    new_broker, topic, version, code
):
    held = {"diskless.append.commit.interval.ms": "600000", "diskless.append.linger.ms": "600000"}
    broker = new_broker({**held, "diskless.append.buffer.max.bytes": "100000"})
    with broker.connect() as producer, broker.connect() as wire:
        old, other = create_topic(wire, topic), create_topic(wire, f"{topic}-other")
        producer.send(produce_request(topic, {0: batch_of(b"old")}, topic_id=old, timeout_ms=60_000), version)
        # What was sent before this round trip is read before what is sent after it.
        assert metadata_of(wire, (topic, None)) == [(NONE, topic, old)]
        assert delete_topic(wire, topic) == NONE
        new = create_topic(wire, topic)
        assert produce_by_id(wire, other, batch_of(bytes(200_000))).error_code == NONE  # fills the object

        refused = producer.receive().responses[0].partition_responses[0]

        assert (refused.error_code, refused.base_offset) == (code, -1)
        assert fetch_by_id(wire, new).high_watermark == 0


@pytest.mark.parametrize("version", [13, 18])
def test_a_fetch_by_id_that_waits_learns_that_its_topic_is_no_more(broker, wire, topic, version):
    topic_id = create_topic(wire, topic)
    with broker.connect() as admin:
        wire.send(fetch_request("", {0: 0}, topic_id=topic_id, max_wait_ms=600_000), version)
        assert delete_topic(admin, topic) == NONE

        assert wire.receive().responses[0].partitions[0].error_code == UNKNOWN_TOPIC_ID


# --- delete and create again, over and over --------------------------------------------------------------------------

ROUNDS = 12
STRESS_TIMEOUT_S = 300
MOVED_ON = {UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC, int(ErrorCode.INCONSISTENT_TOPIC_ID)}
"""What a client of a topic that was deleted may be told: it asks for metadata again."""


class Worker(threading.Thread):
    """A client in a thread of its own, until it is stopped; what went wrong in it is raised by `finish`."""

    def __init__(self, broker, topic):
        super().__init__()
        self.topic = topic
        self.stopped = threading.Event()
        self._broker = broker
        self._error = None

    def run(self):
        try:
            with self._broker.connect() as wire:
                while not self.stopped.is_set():
                    self.step(wire)
        except Exception as error:
            self._error = error

    def finish(self):
        self.stopped.set()
        self.join()
        if self._error is not None:
            raise self._error

    def current_id(self, wire):
        [(code, _, topic_id)] = metadata_of(wire, (self.topic, None), create=False)
        assert code in {NONE, UNKNOWN_TOPIC}
        return topic_id


class IdProducer(Worker):
    """Writes into each topic the topic's own id, and remembers the offsets that it was told."""

    def __init__(self, broker, topic):
        super().__init__(broker, topic)
        self.acknowledged = defaultdict(list)

    def step(self, wire):
        topic_id = self.current_id(wire)
        while topic_id is not None and not self.stopped.is_set():
            answer = produce_by_id(wire, topic_id, batch_of(topic_id.bytes))
            if answer.error_code != NONE:
                assert answer.error_code in MOVED_ON
                return
            self.acknowledged[topic_id].append(answer.base_offset)


class IdConsumer(Worker):
    """Reads each topic from its beginning, and finds its own records and no others there, without a gap."""

    def __init__(self, broker, topic):
        super().__init__(broker, topic)
        self.consumed = defaultdict(int)

    def wait_for(self, topic_id, records):
        """Wait until so many records of a topic are consumed."""
        deadline = time.monotonic() + STRESS_TIMEOUT_S
        while self.consumed[topic_id] < records and self.is_alive():
            assert time.monotonic() < deadline, "nothing is consumed any more"
            time.sleep(0.005)

    def step(self, wire):
        topic_id = self.current_id(wire)
        while topic_id is not None and not self.stopped.is_set():
            answer = fetch_by_id(wire, topic_id, self.consumed[topic_id], max_wait_ms=100)
            if answer.error_code != NONE:
                assert answer.error_code in MOVED_ON
                return
            records = read_records(answer.records)
            first = self.consumed[topic_id]
            assert [record.offset for record in records] == list(range(first, first + len(records)))
            assert {record.value for record in records} <= {topic_id.bytes}
            self.consumed[topic_id] += len(records)


@pytest.mark.one_broker
@guarantee("Deletion and retention", "Clients go on while their topic is deleted and created again, over and over.")
def test_producers_and_consumers_go_on_while_their_topic_is_deleted_and_created_over_and_over(broker, wire, topic):
    group = f"group-of-{topic}"
    workers = [IdProducer(broker, topic), IdProducer(broker, topic), IdConsumer(broker, topic)]
    consumer = workers[-1]
    for worker in workers:
        worker.start()
    try:
        for _ in range(ROUNDS):
            topic_id = create_topic(wire, topic)
            consumer.wait_for(topic_id, 3)
            assert committed_offset(wire, group, topic) == (NONE, -1)
            assert commit_offset(wire, group, "", 3, topic_id=topic_id, version=10) == NONE
            assert committed_offset(wire, group, topic) == (NONE, 3)
            assert delete_topic(wire, topic) == NONE
            assert committed_offset(wire, group, topic) == (NONE, -1)
        last = create_topic(wire, topic)
        consumer.wait_for(last, 3)
    finally:
        for worker in workers:
            worker.stopped.set()
    for worker in workers:
        worker.finish()

    assert len(consumer.consumed) >= ROUNDS + 1
    stored = [record.offset for record in read_records(fetch_by_id(wire, last).records)]
    assert sorted(workers[0].acknowledged[last] + workers[1].acknowledged[last]) == stored
