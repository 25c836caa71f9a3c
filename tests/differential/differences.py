"""Where Diskless differs from Apache Kafka on purpose: the only differences that a scenario may have.

docs/differences.md is written from this list: `python -m tests.differential.differences`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unittest.mock import ANY

from tests.differential.transcript import ABSENT, Difference

PAGE = Path(__file__).parents[2] / "docs/differences.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A difference that is meant.

    Attributes:
        name: by which scenarios expect it.
        places: APIs, each with patterns of paths in its answers and what Kafka and Diskless have there.
        what, kafka, diskless, why: a row of the page.
        everywhere: whether it may show in any scenario; otherwise in those that expect it, and has to.
    """

    name: str
    places: tuple[tuple[str, str, Any, Any], ...]
    what: str
    kafka: str
    diskless: str
    why: str
    everywhere: bool = False

    def covers(self, api: str, found: Difference) -> bool:
        return any(
            fnmatchcase(api, of) and fnmatchcase(found.path, path) and (found.kafka, found.diskless) == (left, right)
            for of, path, left, right in self.places
        )


ALLOWED = (
    Allowed(
        name="no fetch sessions",
        places=(("Fetch", "session_id", ANY, 0),),
        what="A Fetch that asks for a session (KIP-227)",
        kafka="gets one, if the cache has room",
        diskless="gets session id 0, which is: none",
        why="a broker keeps nothing of a client between requests: [ADR 2](adr/0002-fetch-without-sessions.md)",
    ),
    Allowed(
        name="no transactions",
        places=(
            ("FindCoordinator", "*error_code", ANY, 53),
            ("FindCoordinator", "*node_id", ANY, -1),
            ("FindCoordinator", "*host", ANY, ""),
            ("FindCoordinator", "*port", ANY, -1),
        ),
        what="Transactions",
        kafka="has them",
        diskless="TRANSACTIONAL_ID_AUTHORIZATION_FAILED, after which most clients do not try again; sarama does",
        why="they are not there yet",
    ),
    Allowed(
        name="classic members of a consumer group",
        places=(
            ("JoinGroup", "error_code", ANY, 23),
            ("JoinGroup", "generation_id", ANY, -1),
            ("JoinGroup", "protocol_name", ANY, ANY),
            ("JoinGroup", "member_id", ANY, ""),
            ("JoinGroup", "leader", ANY, ""),
            ("JoinGroup", "members.*", ANY, ABSENT),
        ),
        what="JoinGroup, of the classic protocol, for a group with members of the new one (KIP-848)",
        kafka="lets both kinds be members of one group, to move it while it runs",
        diskless="INCONSISTENT_GROUP_PROTOCOL: a group changes its protocol while it has no members",
        why="it is not there yet",
    ),
    Allowed(
        name="no share groups and streams groups",
        places=(
            ("ShareGroupDescribe", "groups.*.error_code", ANY, 35),
            ("StreamsGroupDescribe", "groups.*.error_code", ANY, 35),
        ),
        what="Share groups (KIP-932) and streams groups (KIP-1071)",
        kafka="has them, unless `share.version` and `streams.version` are 0",
        diskless="UNSUPPORTED_VERSION, as Kafka where they are 0; groups are of the classic or the consumer protocol",
        why="they are not there yet",
    ),
    Allowed(
        name="no loggers and client metrics",
        places=(
            ("DescribeConfigs", "results.*.error_code", 0, 42),
            ("DescribeConfigs", "results.*.configs.<*>", ANY, ABSENT),
            ("IncrementalAlterConfigs", "responses.*.error_code", 0, 42),
        ),
        what="Settings of loggers, and of the metrics of clients (KIP-714)",
        kafka="shows and takes them",
        diskless="INVALID_REQUEST; `log.level` needs a restart",
        why="no client's metrics are asked for, and the broker's log has one level",
    ),
    Allowed(
        name="no passwords",
        places=(("AlterUserScramCredentials", "results.*.error_code", 91, 35),),
        what="AlterUserScramCredentials",
        kafka="keeps passwords of users for SCRAM",
        diskless="UNSUPPORTED_VERSION",
        why="nobody is asked who he is yet",
    ),
    Allowed(
        name="no internal topics",
        places=(("Metadata", "topics.*", ANY, ANY),),
        what="Internal topics such as `__consumer_offsets`, in Metadata, ListConfigResources and elsewhere",
        kafka="has them, as topics with settings of their own",
        diskless="has none: UNKNOWN_TOPIC_OR_PARTITION, and no list names them",
        why="what its coordinators write are logs of their own, with the settings of the broker",
    ),
    Allowed(
        name="the log of the quorum",
        places=(
            ("DescribeQuorum", "*.leader_epoch", ANY, ANY),
            ("DescribeQuorum", "*.high_watermark", ANY, ANY),
            ("DescribeQuorum", "*.log_end_offset", ANY, ANY),
            ("DescribeQuorum", "*.last_fetch_timestamp", ANY, ANY),
            ("DescribeQuorum", "*.last_caught_up_timestamp", ANY, ANY),
            ("DescribeQuorum", "nodes.*", ANY, ANY),
        ),
        what="Offsets, epochs and listeners in DescribeQuorum",
        kafka="those of KRaft's log and of its controllers",
        diskless="those of the cluster shard's log, and the listener that was asked",
        why="the cluster shard does what KRaft's log does in Kafka; there are no controllers",
    ),
    Allowed(
        name="a group without offsets",
        places=(("ListGroups", "groups.*", ANY, ABSENT),),
        what="An empty group whose last committed offset is deleted",
        kafka="is listed until its next clean-up",
        diskless="is gone at once",
        why="a group without members and offsets has nothing that could be asked for",
    ),
    Allowed(
        name="no compaction",
        places=(
            ("IncrementalAlterConfigs", "responses.*.error_code", 0, 40),
            ("CreateTopics", "topics.*", ANY, ANY),
        ),
        what="`cleanup.policy` with `compact`",
        kafka="compacts",
        diskless="refuses it with INVALID_CONFIG",
        why="what a broker does not do it must not promise",
    ),
    Allowed(
        name="the controller's min.insync.replicas",
        places=(
            ("*", "*.configs.<min.insync.replicas>.config_source", 3, 5),
            ("*", "*.configs.<min.insync.replicas>.is_default", False, True),
            ("DescribeConfigs", "*.configs.<min.insync.replicas>.synonyms*", ANY, ANY),
        ),
        what="Where `min.insync.replicas` comes from",
        kafka="from a default for all brokers, which its controller sets in a new cluster",
        diskless="from the default of the setting, which has no effect",
        why="no replica has to be in sync",
        everywhere=True,
    ),
    Allowed(
        name="min.insync.replicas of one broker",
        places=(("IncrementalAlterConfigs", "responses.*.error_code", 40, 0),),
        what="`min.insync.replicas` for one broker",
        kafka="refuses it in a new cluster (KIP-966)",
        diskless="keeps it, without an effect",
        why="no replica has to be in sync",
    ),
    Allowed(
        name="settings of brokers that need a restart",
        places=(
            ("IncrementalAlterConfigs", "responses.*.error_code", 0, 40),
            ("IncrementalAlterConfigs", "responses.*.error_code", 0, 42),
            ("IncrementalAlterConfigs", "responses.*.error_code", 42, 40),
        ),
        what="Altering a running broker's `producer.id.expiration.ms`, its settings of remote storage that have an "
        "effect here, of listeners, security and the coordinators of groups, and settings that Kafka does not have",
        kafka="takes them, those of listeners and security for one broker only, and keeps what it does not know",
        diskless="refuses them with INVALID_REQUEST, or INVALID_CONFIG where it has no such setting",
        why="they are read when the broker starts, and a misspelt name should not look like a success",
    ),
    Allowed(
        name="where settings come from",
        places=(("DescribeConfigs", "results.*.configs.<*>.synonyms*", ANY, ANY),),
        what="Synonyms in DescribeConfigs",
        kafka="leaves out some defaults, and names `log.cleanup.policy`",
        diskless="shows all values that a setting could have, by the names of its own settings",
        why="an operator sees what would be in force without the topic's own value",
    ),
    Allowed(
        name="other apis",
        places=(("ApiVersions", "*", ANY, ANY),),
        what="The APIs and features in ApiVersions",
        kafka="all of its own",
        diskless=(
            "all but WriteTxnMarkers, see [protocol support](protocol_support.md); of the features `group.version` "
            "and the `metadata.version` of Kafka 4.2"
        ),
        why="a client uses what both know",
    ),
    Allowed(
        name="topics created by Metadata",
        places=(
            ("Metadata", "topics.*.error_code", 3, 0),
            ("Metadata", "topics.*.topic_id", None, ANY),
            ("Metadata", "topics.*.partitions.*", ABSENT, ANY),
        ),
        what="Metadata that creates a topic",
        kafka="answers UNKNOWN_TOPIC_OR_PARTITION, and the client asks again",
        diskless="answers when the topic is there; as Kafka does, with `diskless.auto.create.topics.wait=false`",
        why="a client need not ask twice",
    ),
    Allowed(
        name="brokers in a refused Metadata",
        places=(
            ("Metadata", "brokers.*", ABSENT, ANY),
            ("Metadata", "cluster_id", None, ANY),
            ("Metadata", "controller_id", -1, ANY),
        ),
        what="Metadata by id in versions 10 and 11, which is refused",
        kafka="names no brokers",
        diskless="names them",
        why="only the topics are refused",
    ),
    Allowed(
        name="errors that nobody caught",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", -1, 76),
            ("Produce", "responses.*.partition_responses.*.log_start_offset", 0, -1),
            ("IncrementalAlterConfigs", "responses.*.error_code", -1, 42),
            ("DescribeTopicPartitions", "topics.*.error_code", -1, 17),
            ("Metadata", "topics.*", ANY, ANY),
            ("Metadata", "brokers.*", ABSENT, ANY),
            ("Metadata", "cluster_id", None, ANY),
            ("Metadata", "controller_id", -1, ANY),
            ("Metadata", "error_code", -1, 0),
        ),
        what="Codecs and config operations that do not exist, topics with a bad name or with neither name nor id",
        kafka="UNKNOWN_SERVER_ERROR, from an exception that nobody caught",
        diskless="the error code that says what is wrong",
        why="UNKNOWN_SERVER_ERROR is no answer to rely on",
    ),
    Allowed(
        name="bytes behind a batch",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 0, 87),
            ("Produce", "responses.*.partition_responses.*.base_offset", 0, -1),
            ("Produce", "responses.*.partition_responses.*.log_start_offset", 0, -1),
        ),
        what="A few bytes behind the batch in a Produce request",
        kafka="ignores them",
        diskless="refuses the batch with INVALID_RECORD",
        why="data that a client sent must not vanish silently",
    ),
    Allowed(
        name="a partition twice",
        places=(("Produce", "responses.*.partition_responses.*", ABSENT, ANY),),
        what="A partition that is named twice in a Produce request",
        kafka="does only the last of them",
        diskless="does each",
        why="an acknowledged request must not lose a batch",
    ),
    Allowed(
        name="a producer id without an epoch",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 0, 87),
            ("Produce", "responses.*.partition_responses.*.base_offset", 0, -1),
        ),
        what="A batch with a producer id and no producer epoch",
        kafka="appends it",
        diskless="refuses it with INVALID_RECORD",
        why="no client sends it, and duplicates of it could not be found",
    ),
    Allowed(
        name="a retry of an old batch",
        places=(("Produce", "responses.*.partition_responses.*.error_code", 45, 46),),
        what="A retry of a batch that is older than the last five of its producer in the partition",
        kafka="OUT_OF_ORDER_SEQUENCE_NUMBER: Java's producer sends it again with a new epoch, and it is there twice",
        diskless="DUPLICATE_SEQUENCE_NUMBER, which clients take for a success without an offset",
        why="more than five batches are in flight where the leader of a partition changes, five by each broker",
    ),
    Allowed(
        name="the first batch of a producer",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 0, 45),
            ("Produce", "responses.*.partition_responses.*.base_offset", 0, -1),
            ("Produce", "responses.*.partition_responses.*.log_start_offset", 0, -1),
        ),
        what="A new idempotent producer whose first batch in a partition has another sequence than 0",
        kafka="appends it",
        diskless=(
            "OUT_OF_ORDER_SEQUENCE_NUMBER, unless something may have been forgotten of it or of a producer with a "
            "higher id: it expired, or this topic came after it had written and some topic was deleted, all in the "
            "coordinator of this partition (a topic that is created again may come to other ones)"
        ),
        why="of two batches in flight the second may come first, by another broker; the first would have no place then",
    ),
    Allowed(
        name="records at fault",
        places=(("Produce", "responses.*.partition_responses.*.record_errors.*", ANY, ABSENT),),
        what="Which record of a refused batch is at fault",
        kafka="names it",
        diskless="names the batch only",
        why="a producer sends or drops a batch as a whole",
    ),
    Allowed(
        name="old records in a batch",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 32, 0),
            ("Produce", "responses.*.partition_responses.*.base_offset", -1, 0),
            ("Produce", "responses.*.partition_responses.*.log_start_offset", ANY, 0),
            ("Produce", "responses.*.partition_responses.*.record_errors.*", ANY, ABSENT),
        ),
        what="A record older than `message.timestamp.before.max.ms` behind a newer one in its batch",
        kafka="refuses the batch with INVALID_TIMESTAMP",
        diskless="the same where it checks every record, see `diskless.produce.records.validation`; else appends it",
        why="to look at every record costs more than all else that is done for a batch",
    ),
    Allowed(
        name="damaged compressed records",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", -1, 87),
            ("Produce", "responses.*.partition_responses.*.error_code", -1, 0),
            ("Produce", "responses.*.partition_responses.*.base_offset", -1, 0),
        ),
        what="A batch whose compressed records are damaged, with a checksum that fits",
        kafka="UNKNOWN_SERVER_ERROR, from an exception that nobody caught",
        diskless=(
            "INVALID_RECORD where it unpacks all of them, see `diskless.produce.records.validation`; else only if "
            "their beginning is damaged"
        ),
        why="unpacking costs more than all else that is done for a batch",
    ),
    Allowed(
        name="records that become very large",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 0, 10),
            ("Produce", "responses.*.partition_responses.*.base_offset", 0, -1),
            ("Produce", "responses.*.partition_responses.*.log_start_offset", 0, -1),
        ),
        what="A batch for a topic that wants another codec, whose records are larger than 64 MiB without one",
        kafka="compresses it again, whatever memory that takes",
        diskless="MESSAGE_TOO_LARGE, after which producers send it in smaller batches",
        why="a few bytes must not take all of a broker's memory",
    ),
    Allowed(
        name="the latest timestamp that a client writes",
        places=(("Fetch", "responses.*.partitions.*.records.*.max_timestamp", ANY, ANY),),
        what="A batch whose header has another latest timestamp than its records",
        kafka="writes the true one into the header",
        diskless=(
            "the same where it checks every record, see `diskless.produce.records.validation`, or the header's "
            "timestamps are out of bounds; else keeps the header"
        ),
        why="to look at every record costs more than all else that is done for a batch",
    ),
    Allowed(
        name="records behind the first one",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 87, 0),
            ("Produce", "responses.*.partition_responses.*.base_offset", -1, 0),
        ),
        what="A batch whose later records are not what its header says: they are malformed, or not as many",
        kafka="refuses it with INVALID_RECORD",
        diskless="the same where it checks every record, see `diskless.produce.records.validation`; else appends it",
        why="to look at every record costs more than all else that is done for a batch",
    ),
    Allowed(
        name="lengths of compressed records",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 0, 87),
            ("Produce", "responses.*.partition_responses.*.base_offset", ANY, -1),
        ),
        what="A compressed record whose length is not what its fields take, or an lz4 frame with a wrong checksum",
        kafka="appends the batch, and clients cannot read it",
        diskless="refuses it with INVALID_RECORD where it checks every record",
        why="a batch that clients cannot read stops them",
    ),
    Allowed(
        name="offset deltas of compressed records",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", -1, 0),
            ("Produce", "responses.*.partition_responses.*.base_offset", -1, 0),
            ("Produce", "responses.*.partition_responses.*.log_start_offset", ANY, 0),
        ),
        what="A compressed batch whose offset deltas do not run 0, 1, 2",
        kafka="UNKNOWN_SERVER_ERROR, from an exception that nobody caught; without compression it is appended",
        diskless="appends it",
        why="clients can read it",
    ),
    Allowed(
        name="a client's LogAppendTime",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 0, 32),
            ("Produce", "responses.*.partition_responses.*.base_offset", 0, -1),
        ),
        what="A batch that claims LogAppendTime for a topic with CreateTime",
        kafka="appends it, with CreateTime",
        diskless="refuses it with INVALID_TIMESTAMP",
        why="no client sends it, and a batch is not encoded again",
    ),
    Allowed(
        name="the append time of a duplicate",
        places=(("Produce", "responses.*.partition_responses.*.log_append_time_ms", ANY, -1),),
        what="The append time in the answer to a batch that was there already, in a topic with CreateTime",
        kafka="the batch's own timestamp",
        diskless="-1, as the first time",
        why="an answer does not change because it comes again",
    ),
    Allowed(
        name="expiry by a clock that jumped",
        places=(),  # no single answer shows it
        what="Retention by time, and other expiry, where the clock jumped or the broker was down",
        kafka="goes by the wall clock",
        diskless="counts only [time that has certainly passed](operations.md#clocks)",
        why="a wrong clock must not remove what was acknowledged",
        everywhere=True,
    ),
    Allowed(
        name="the last time of a producer",
        places=(("DescribeProducers", "topics.*.active_producers.*.last_timestamp", ANY, ANY),),
        what="`last_timestamp` in DescribeProducers",
        kafka="the timestamp that the producer wrote",
        diskless="the time of the commit",
        why="how long a producer is remembered does not depend on its clock",
    ),
    Allowed(
        name="the epoch fetched last",
        places=(("Fetch", "responses.*.partitions.*.*", ANY, ANY),),
        what="`last_fetched_epoch` in Fetch",
        kafka="tells a follower where its log diverges",
        diskless="ignores it",
        why="there are no followers, and consumers do not send it",
    ),
    Allowed(
        name="a replica's fetch",
        places=(("Fetch", "responses.*.partitions.*.*", ANY, ANY),),
        what="Fetch with a replica id",
        kafka="NOT_LEADER_OR_FOLLOWER for a broker that is no replica",
        diskless="answers as to a consumer",
        why="there are no replicas; data is not more secret to a broker than to a consumer",
    ),
    Allowed(
        name="the latest timestamp after a deletion",
        places=(
            ("ListOffsets", "topics.*.partitions.*.timestamp", ANY, ANY),
            ("ListOffsets", "topics.*.partitions.*.offset", ANY, ANY),
            ("ListOffsets", "topics.*.partitions.*.leader_epoch", 0, -1),
        ),
        what="The record with the latest timestamp, when it was deleted",
        kafka="its offset, below the log start offset",
        diskless="that of the latest among those that are left",
        why="an offset that is answered can be fetched",
    ),
)


def allows(api: str, found: Difference, expected: Collection[str]) -> set[str]:
    """The names of the allowed differences that explain this one."""
    return {
        allowed.name
        for allowed in ALLOWED
        if (allowed.everywhere or allowed.name in expected) and allowed.covers(api, found)
    }


IN_A_CLUSTER = (
    Allowed(
        name="a leader for the client",
        places=tuple(
            (api, f"topics.*{field}*", ANY, ANY)
            for api in ("Metadata", "DescribeTopicPartitions")
            for field in ("leader_id", "replica_nodes", "isr_nodes")
        ),
        what="Leader, replicas and in-sync replicas of a partition, where brokers share the log",
        kafka="are brokers that have copies of it, the same ones for all clients",
        diskless="are one broker, [chosen for the client that asks](cluster.md#what-leader-means-here), in its rack",
        why="any broker takes what is produced to any partition (KIP-1181)",
    ),
    Allowed(
        name="a gap may still fill",
        places=(
            ("Produce", "responses.*.partition_responses.*.error_code", 45, 19),
            ("Produce", "responses.*.partition_responses.*.error_code", 0, 19),
        ),
        what="A batch that does not follow the last one of its producer, where brokers share the log",
        kafka="OUT_OF_ORDER_SEQUENCE_NUMBER",
        diskless=(
            "NOT_ENOUGH_REPLICAS, after which clients send it again; OUT_OF_ORDER_SEQUENCE_NUMBER once it has not "
            "followed for 45 seconds"
        ),
        why=(
            "the batch before may be under way at another broker. librdkafka takes Kafka's error for its loss, and "
            "sends all that has no answer with a new epoch: it would be there twice"
        ),
    ),
)
"""Those of a broker that is one of several, besides."""


def rendered_page() -> str:
    """docs/differences.md as this list has it."""
    lines = [
        "# Differences from Apache Kafka",
        "",
        "<!-- Written by `python -m tests.differential.differences`; edit the list there instead. -->",
        "",
        "The tests send the same requests to a real Apache Kafka 4.3 and to Diskless, and compare the answers field by",
        "field. These are the differences that they allow; every other one is a defect. The wording of error messages",
        "and of documentation is not compared.",
        "",
        "| What | Apache Kafka | Diskless | Why |",
        "| --- | --- | --- | --- |",
        *(f"| {one.what} | {one.kafka} | {one.diskless} | {one.why} |" for one in (*ALLOWED, *IN_A_CLUSTER)),
        "",
        "A Produce request with null records gets no answer from Apache Kafka at all, so there is nothing to compare;",
        "Diskless answers INVALID_RECORD.",
        "",
        "Two requests would change the real one for all tests: UnregisterBroker of the broker that is asked, which",
        "is not forgotten while it runs (INVALID_REQUEST), and UpdateFeatures to a lower level, which no feature gets",
        "(INVALID_UPDATE_VERSION).",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(rendered_page())
