"""The requests that scenarios are made of, in few words: each makes the data of one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.differential.language import Answer, Ask, Await, Made, Step, The, ask
from tests.support.batches import batch_of, timed_batch, with_header

TOPIC_ID = The("id")
ALL_BYTES = 50 << 20
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def batch(*values: bytes, **header: Any) -> Made:
    return Made(batch_of, values or (b"v",), header)


def timed(*timestamps: int, **options: Any) -> Made:
    return Made(timed_batch, timestamps, options)


def lying(good: Made, **header: Any) -> Made:
    """A batch with these fields in its header, and a checksum that fits unless `crc` is among them."""
    return Made(with_header, (good,), header)


def joined(*parts: Made | bytes) -> Made:
    return Made(lambda *found: b"".join(found), parts)


def on(connection: str, step: Ask) -> Ask:
    return replace(step, on=connection)


def later(step: Ask) -> Ask:
    """The answer comes with an `answered` on the same connection."""
    return replace(step, answer=Answer.LATER)


def unanswered(step: Ask) -> Ask:
    return replace(step, answer=Answer.NEVER)


def answered(connection: str = "first", **saves: str) -> Await:
    return Await(on=connection, saves=saves)


def at(version: int, step: Ask) -> Ask:
    return replace(step, version=version)


def saving(step: Ask, **saves: str) -> Ask:
    return replace(step, saves=saves)


def until(step: Ask, wanted: Mapping[str, Any], *, shown: bool = False) -> Ask:
    return replace(step, until=wanted, shown=shown)


def metadata(*names: str, create: bool = False, **options: Any) -> Ask:
    topics = [{"name": name, "topic_id": None} for name in names]
    return ask("Metadata", topics=topics, allow_auto_topic_creation=create, **options)


def new_topic(name: str = "$", partitions: int = 1, *, replicas: int = -1, **configs: str | None) -> dict[str, Any]:
    entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": entries,
    }


def create_topics(*topics: Mapping[str, Any], validate_only: bool = False) -> Ask:
    return ask("CreateTopics", topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def topic(name: str = "$", partitions: int = 1, *, save: str = "id", **configs: str | None) -> tuple[Step, ...]:
    """A topic that is there for all requests that follow; its id is saved."""
    created = replace(create_topics(new_topic(name, partitions, **configs)), version=7, shown=False)
    return (created, *ready(name, partitions, save=save))


def ready(name: str = "$", partitions: int = 1, *, save: str = "id") -> tuple[Step, ...]:
    """Wait until a broker serves a topic with that many partitions: Kafka answers CreateTopics a little earlier."""
    there = until(
        at(12, metadata(name)),
        {"topics.0.error_code": 0, f"topics.0.partitions.{partitions - 1}.error_code": 0},
    )
    latest = at(10, list_offsets(*[LATEST] * partitions, topic=name))
    serving = until(latest, {f"topics.0.partitions.{index}.error_code": 0 for index in range(partitions)})
    return (saving(there, **{save: "topics.0.topic_id"}), serving)


def gone(name: str = "$", partitions: int = 1) -> tuple[Step, ...]:
    """Wait until a broker neither knows nor serves a topic any more: Kafka's metadata forget it a little earlier."""
    forgotten = until(at(12, metadata(name)), {"topics.0.error_code": 3})
    latest = at(10, list_offsets(*[LATEST] * partitions, topic=name))
    served_no_more = until(latest, {f"topics.0.partitions.{index}.error_code": 3 for index in range(partitions)})
    return (forgotten, served_no_more)


def produce(
    *batches: Any, topic: str = "$", topic_id: Any = TOPIC_ID, partition: int = 0, acks: int = -1, **options: Any
) -> Ask:
    """Produce a batch to one partition, or several to partitions from it on."""
    data = [{"index": partition + place, "records": records} for place, records in enumerate(batches)]
    return produce_to([{"name": topic, "topic_id": topic_id, "partition_data": data}], acks=acks, **options)


def produce_to(topics: Sequence[Any], *, acks: int = -1, **options: Any) -> Ask:
    fields = {"transactional_id": None, "acks": acks, "timeout_ms": 10_000, "topic_data": list(topics)}
    return ask("Produce", **(fields | options))


def fetch(*offsets: int, topic: str = "$", topic_id: Any = TOPIC_ID, partition: int = 0, **options: Any) -> Ask:
    """Fetch from one partition, or several from it on, each with its offset."""
    return fetch_from([fetched_topic(*offsets, topic=topic, topic_id=topic_id, partition=partition)], **options)


def fetched_topic(
    *offsets: int, topic: str = "$", topic_id: Any = TOPIC_ID, partition: int = 0, **options: Any
) -> dict[str, Any]:
    partitions = [
        {
            "partition": partition + place,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": ALL_BYTES,
            **options,
        }
        for place, offset in enumerate(offsets)
    ]
    return {"topic": topic, "topic_id": topic_id, "partitions": partitions}


def fetch_from(topics: Sequence[Any], **options: Any) -> Ask:
    fields = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": ALL_BYTES,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": list(topics),
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return ask("Fetch", **(fields | options))


def moment_later(end: int) -> Ask:
    """Have the broker wait at the end of the topic, so that what follows is of a later millisecond of its clock."""
    return replace(fetch(end, max_wait_ms=20), shown=False)


def list_offsets(*timestamps: int, topic: str = "$", partition: int = 0, epoch: int = -1, **options: Any) -> Ask:
    """ListOffsets of partitions from one on, each with its timestamp."""
    partitions = [
        {"partition_index": partition + place, "current_leader_epoch": epoch, "timestamp": timestamp}
        for place, timestamp in enumerate(timestamps)
    ]
    fields = {"replica_id": -1, "isolation_level": 0, "timeout_ms": 5000}
    return ask("ListOffsets", **(fields | options), topics=[{"name": topic, "partitions": partitions}])


def delete_records(*offsets: int, topic: str = "$", partition: int = 0) -> Ask:
    partitions = [{"partition_index": partition + place, "offset": offset} for place, offset in enumerate(offsets)]
    return ask("DeleteRecords", topics=[{"name": topic, "partitions": partitions}], timeout_ms=10_000)


def delete_topics(*names: str, ids: Sequence[Any] = ()) -> Ask:
    states = [{"name": name, "topic_id": None} for name in names] + [{"name": None, "topic_id": found} for found in ids]
    return ask("DeleteTopics", topics=states, topic_names=list(names), timeout_ms=10_000)


def new_producer(save: str = "pid") -> Ask:
    return saving(init_producer_id(), **{save: "producer_id"})


def forgotten_producer(name: str = "$-forgotten") -> tuple[Step, ...]:
    """A new producer of which something was forgotten, so that it may begin at any sequence: a topic was deleted."""
    first = batch(producer_id=The("pid"), producer_epoch=0, base_sequence=0)
    return (
        *topic(name, save="forgotten"),
        new_producer(),
        at(12, produce(first, topic=name, topic_id=None)),
        delete_topics(name),
        *gone(name),
    )


def init_producer_id(**options: Any) -> Ask:
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return ask("InitProducerId", **(fields | options))
