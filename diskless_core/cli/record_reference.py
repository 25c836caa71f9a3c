"""docs/records.md: every record that a coordinator log may hold, its fields from the schema, its meaning from here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from diskless_core.protocol import messages
from diskless_core.protocol.codec import CompiledRecord
from diskless_core.shards import CLUSTER, DISKLESS, SHARD_KINDS, ShardKind


class Meaning(NamedTuple):
    """What the schema of a record does not say."""

    says: str
    written: str
    replay: str


Meanings = Mapping[type[CompiledRecord], Meaning]

EVERY_SHARD: Meanings = {
    messages.CoordinatorEntryRecord: Meaning(
        "The command that the rest of the entry is.",
        "By a shard's leader, as the first record of every entry but a claim.",
        "Takes the entry if its term is the latest claim's and its sequence the next one, else ignores it whole. A "
        "replica that reads it from the log stops if the log lacks what the leader had read back.",
    ),
    messages.CoordinatorClaimRecord: Meaning(
        "A node wants to lead the shard.",
        "By the node that the log names as leader, before it leads; alone in its entry.",
        "The claim's own offset is the term from here on, and sequences begin at 0. Older terms are ignored.",
    ),
    messages.CoordinatorNoOpRecord: Meaning(
        "Nothing.",
        "By the leader, when a read has to be strict and nothing else is on its way through the log.",
        "Changes nothing. That it was read back proves that the leader still leads.",
    ),
    messages.FeatureLevelRecord: Meaning(
        "The shard is written at this level of `diskless.version` from here on.",
        "In the cluster shard with the cluster's id, and for UpdateFeatures; in the others by their leader, as soon as "
        "it knows of the cluster's new level.",
        "Puts the level. A replica whose version does not support it stops here.",
    ),
    messages.LogNamedRecord: Meaning(
        "The id of the shard's log.",
        "By the first leader of the shard, and by `diskless migrate-log`.",
        "Puts the id. A replica whose store or snapshot has another one stops here.",
    ),
    messages.LogMovedRecord: Meaning(
        "The log ends here. The shard goes on, on another log.",
        "By `diskless migrate-log`.",
        "Stops the shard: a broker that is started on this log is refused.",
    ),
    messages.CoordinatorSnapshotRecord: Meaning(
        "A snapshot is whole.",
        "By the leader, into the object store, as the last object of a snapshot. It is never in a log.",
        "A shard whose log does not reach back far enough fills its store from the parts and reads on from the offset.",
    ),
}

_DISKLESS: Meanings = {
    messages.DisklessPartitionsCreatedRecord: Meaning(
        "Partitions of a topic exist, empty.",
        "For DisklessCreatePartitions: by CreateTopics and CreatePartitions, or at the start after a crash between.",
        "Puts the partitions and their heads, from offset 0 on.",
    ),
    messages.DisklessTopicDeletedRecord: Meaning(
        "The topic's partitions that this coordinator has are gone.",
        "For DisklessDeleteTopics.",
        "Removes topic and partition heads. Its rows of batches are trimmed later, and its producers are forgotten by "
        "records of their own.",
    ),
    messages.DisklessFileCommittedRecord: Meaning(
        "An object's batches have offsets.",
        "For DisklessCommitFile, even if all batches are refused: the same request has to get the same answer again.",
        "Appends runs of batches, moves high watermarks, extends the producers' windows, and remembers the object with "
        "the answer.",
    ),
    messages.DisklessRecordsDeletedRecord: Meaning(
        "A partition begins at a later offset.",
        "For DisklessDeleteRecords, and by retention.",
        "Moves the log start, never back. Rows of batches below it are trimmed later.",
    ),
    messages.DisklessFileHandedOverRecord: Meaning(
        "An object without live batches here has its next owner.",
        "By the worker that hands objects over, once the next owner has confirmed.",
        "The object is none of this coordinator's business any more; it is remembered until it is forgotten.",
    ),
    messages.DisklessFileReceivedRecord: Meaning(
        "This coordinator owns an object that another one has handed over.",
        "For DisklessHandOverFiles.",
        "Remembers it. One that was not committed here leaves a tombstone, so that a late commit is refused.",
    ),
    messages.DisklessFileDeletedRecord: Meaning(
        "An object is gone from the object store.",
        "By the worker that deletes dead objects, on its last owner, once the object store has confirmed.",
        "It is not deleted again; it is remembered until it is forgotten.",
    ),
    messages.DisklessFileForgottenRecord: Meaning(
        "Nothing of an object has to be known any more.",
        "By the same workers, when nobody sends its commit again: ten minutes after it, and after the election.",
        "Removes all that is known of it.",
    ),
    messages.DisklessHorizonRaisedRecord: Meaning(
        "What was created earlier and is not committed never will be.",
        "By the scan for orphans, in every shard, before it deletes anything.",
        "Raises the horizon, never back. A commit of an older object is refused with KAFKA_STORAGE_ERROR.",
    ),
    messages.DisklessProducersExpiredRecord: Meaning(
        "Producers are forgotten.",
        "By the leader, every `producer.id.expiration.check.interval.ms`, of producers that were silent for "
        "`producer.id.expiration.ms`; and when a topic is gone, of all that it knew. At most 500 in an entry.",
        "Removes their windows. The next batch of such a producer is taken for its first.",
    ),
    messages.DisklessRecordsTieredRecord: Meaning(
        "Records are in a segment now, and not in WAL objects any more.",
        "By compaction, when the segment's copy is complete and durable.",
        "Adds the segment to those of the partition. Rows of batches below its end are trimmed later.",
    ),
    messages.DisklessPartitionAdoptedRecord: Meaning(
        "A partition that was empty has the records of segments that Apache Kafka made.",
        "For `diskless import kafka`.",
        "Puts the segments; the partition goes on behind the last one.",
    ),
    messages.DisklessRemoteLogMetadataRecord: Meaning(
        "The copy of a segment, or the deletion of a partition's segments, has come to another state.",
        "By compaction and the removal of segments, where `remote_log_metadata` is `coordinator`.",
        "Puts what is known of it, and removes it when all is deleted.",
    ),
}

_CLUSTER: Meanings = {
    messages.RegisterBrokerRecord: Meaning(
        "A broker is a member of the cluster.",
        "For BrokerRegistration, when a broker's process starts; again, when its registration is gone.",
        "Puts the broker in the place of the one that had its node id, fenced.",
    ),
    messages.BrokerRegistrationChangeRecord: Meaning(
        "A broker is fenced, unfenced, or about to stop.",
        "For BrokerHeartbeat, and when a broker was silent for `broker.session.timeout.ms`.",
        "Changes the broker, if the registration is still the one that the record names.",
    ),
    messages.UnregisterBrokerRecord: Meaning(
        "A broker is no member any more.", "For UnregisterBroker.", "Removes the broker."
    ),
    messages.TopicRecord: Meaning("A topic exists.", "For CreateTopics and automatic creation.", "Puts the topic."),
    messages.PartitionsPlacedRecord: Meaning(
        "Partitions of a topic exist, and belong to coordinators for good.",
        "For CreateTopics and CreatePartitions, in the same entry as their topic; several where there are very many.",
        "Adds the partitions behind those that the topic has.",
    ),
    messages.TopicSettledRecord: Meaning(
        "The coordinators of a topic have created its partitions, or have deleted them.",
        "By the controller, after CreateTopics, CreatePartitions and DeleteTopics; it repeats the step until then.",
        "The step is no longer unfinished, if the topic has as many partitions as the record says, or none.",
    ),
    messages.ConfigRecord: Meaning(
        "A setting of a topic, a broker or a group has a value, or none.",
        "For CreateTopics, AlterConfigs and IncrementalAlterConfigs.",
        "Puts or removes the setting.",
    ),
    messages.RemoveTopicRecord: Meaning(
        "A topic is gone.", "For DeleteTopics.", "Removes the topic with its partitions and settings."
    ),
    messages.ClientQuotaRecord: Meaning(
        "A quota of clients has a value, or none.", "For AlterClientQuotas.", "Puts or removes the quota."
    ),
    messages.ProducerIdsRecord: Meaning(
        "A broker took a block of producer ids.",
        "When a broker has none left for InitProducerId.",
        "Later blocks begin behind it.",
    ),
    messages.NodeIdAllocatedRecord: Meaning(
        "A broker with node.id=auto has a node id that no broker had before.",
        "By DisklessAllocateNodeId, when the broker has none yet.",
        "Puts the node id with the allocation id, by which the broker registers. An UnregisterBrokerRecord takes it "
        "away for good. No broker gets the id again.",
    ),
    messages.CoordinatorNominationRecord: Meaning(
        "A broker should lead a coordinator, and these may be next.",
        "By the controller, where brokers share the coordinator log: a leader is gone, or brokers lead unequally many.",
        "Puts the nomination. The named broker claims the coordinator; who leads, its own log says.",
    ),
    messages.CoordinatorsCountedRecord: Meaning(
        "So many coordinators of a kind there are.",
        "By the first start of all, with the cluster's id, and by `diskless migrate-log` where it changes the number.",
        "Puts the number. A group belongs to the coordinator that the number and its id give.",
    ),
    messages.ClusterNamedRecord: Meaning("The cluster's id.", "By the first start of all.", "Puts the id."),
}

MEANINGS: Mapping[ShardKind, Meanings] = {DISKLESS: _DISKLESS, CLUSTER: _CLUSTER}
"""The records of the kinds of shard whose records stand in KRaft's framing."""

_PREAMBLE = """\
# Records of the metadata log

<!-- Generated by `make docs` from the schemas in diskless_core/protocol/messages. Edit those, or
diskless_core/cli/record_reference.py. -->

Everything that `diskless coordinator dump` may show. Numbers 0 to 17 are KRaft's, 100 to 103 KIP-1164's; from 120 on
they are ours, in a gap that Apache Kafka does not use. How records come about is told in [coordinator](coordinator.md).

## How they stand in the log

A log is a sequence of *entries*. An entry is one Kafka record batch of format 2 (magic 2, CRC-32C over its body) and is
appended whole or not at all. Its offset is that of its first record.

| Entry | Records, in order |
|---|---|
| a claim | one CoordinatorClaimRecord |
| a command | one CoordinatorEntryRecord with term, sequence and the log's id, then the command's records |

A record of the cluster's or a diskless shard has no key. Its value is framed as in KRaft: three unsigned varints, which
are the frame version 1, the record's number and its version, then its fields in Kafka's flexible encoding. For instance

```text
01 78 00  00 00 00 00 00 00 00 2a  00 00 00 00 00 00 00 07  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  00
│  │  │   └ Term 42                └ Sequence 7             └ LogId, none yet                                └ no tags
│  │  └ version 0
│  └ number 120, CoordinatorEntryRecord
└ frame version 1
```

Replay is a pure function: the same entries give the same tables on every node. Types are Kafka's.

## What a replica does not know

Each record, and each version of one, came with a level of the feature `diskless.version`; all of those on this page
came with level 1. A leader writes none that needs more than the level in force, so brokers of two versions can run
together: [upgrade a cluster](operations.md#upgrade-a-cluster).

A replica that meets a record or a version that it does not know stops, and says which it is and that its broker has to
be upgraded. The others go on. One exception is in the frame: the frame version 2 in place of 1 says that the record may
be ignored. No replica replays such a record, whether it knows it or not, so all behave alike; `diskless coordinator
dump` shows it. It may stand in any shard, without a key. A tagged field that a replica does not know is passed over.
"""

_KEYED = """
These are Apache Kafka's records of `{topic}`, with a key and a value each; a record without a value deletes
what its key names. Behind the entry's first record they are encoded as in Apache Kafka: an int16 in front of a key says
what kind it is.

| Key version | Key | Value |
|---|---|---|
"""


def render() -> str:
    """The page as Markdown."""
    return "".join((_PREAMBLE, _part("All shards", EVERY_SHARD), *map(_kind, SHARD_KINDS)))


def _kind(kind: ShardKind) -> str:
    title = f"The {kind.name} shard" if kind.count_setting is None else f"{kind.name.capitalize()} shards"
    if kind.keyed_records is None:
        return _part(title, MEANINGS[kind])
    pairs = sorted(kind.keyed_records.values.items(), key=lambda pair: _number(pair[0]))
    rows = "".join(f"| {_number(key)} | {key.__name__} | {value.__name__} |\n" for key, value in pairs)
    return f"\n## {title}\n{_KEYED.format(topic=kind.topic)}{rows}"


def _number(record: type[CompiledRecord]) -> int:
    number: int = record.json["apiKey"]
    return number


def _part(title: str, meanings: Meanings) -> str:
    by_number = sorted(meanings.items(), key=lambda pair: _number(pair[0]))
    return f"\n## {title}\n" + "".join(_record(record, meaning) for record, meaning in by_number)


def _record(record: type[CompiledRecord], meaning: Meaning) -> str:
    rows = "".join(f"| {name} | {kind} | {about} |\n" for name, kind, about in _fields(record.json["fields"]))
    return (
        f"\n### {_number(record)} {record.__name__}\n\n{meaning.says}\n\n"
        f"- **Written:** {meaning.written}\n- **Replay:** {meaning.replay}\n\n"
        f"| Field | Type | Meaning |\n|---|---|---|\n{rows}"
    )


def _fields(fields: Sequence[Mapping[str, Any]], within: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each field; what is nested bears the names of what it is in."""
    for field in fields:
        name, kind = f"{within}{field['name']}", field["type"]
        tag = f", tag {field['tag']}" if "tag" in field else ""
        yield f"`{name}`", f"{'array' if 'fields' in field else kind}{tag}", field["about"]
        yield from _fields(field.get("fields", ()), f"{name}[].")
