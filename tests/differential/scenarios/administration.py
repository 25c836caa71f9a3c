"""What an administrator asks of one broker: leaders, replicas, features, the quorum, security, transactions."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.differential.language import NO_ID, UNKNOWN_ID, Ask, ask, scenario
from tests.differential.scenarios.configs import BROKER_LOGGER, CLIENT_METRICS, SET, change, describe
from tests.differential.words import at, topic, until

PREFERRED, UNCLEAN = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2
TOPIC_RESOURCE, LITERAL, ANY, READ, ALLOW = 2, 3, 1, 3, 3
SCRAM_SHA_256 = 1
ELSEWHERE = "/no/such/folder"


def elect(*partitions: int, topic: str = "$", kind: int = PREFERRED) -> Ask:
    return ask(
        "ElectLeaders",
        election_type=kind,
        topic_partitions=[{"topic": topic, "partitions": partitions}],
        timeout_ms=9000,
    )


def reassign(*replicas: Sequence[int] | None, topic: str = "$", **options: Any) -> Ask:
    """Partitions from 0 on to these replicas each."""
    partitions = [{"partition_index": index, "replicas": wanted} for index, wanted in enumerate(replicas)]
    topics = [{"name": topic, "partitions": partitions}]
    return ask("AlterPartitionReassignments", timeout_ms=9000, topics=topics, **options)


def update_features(*levels: tuple[str, int], kind: int = UPGRADE, validate_only: bool = False) -> Ask:
    updates = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level in levels]
    return ask("UpdateFeatures", timeout_ms=9000, feature_updates=updates, validate_only=validate_only)


def describe_quorum(*partitions: tuple[str, int]) -> Ask:
    topics = [{"topic_name": name, "partitions": [{"partition_index": index}]} for name, index in partitions]
    return ask("DescribeQuorum", topics=topics)


def add_voter(voter_id: int, folder: uuid.UUID, cluster_id: str | None = None) -> Ask:
    return ask(
        "AddRaftVoter",
        cluster_id=cluster_id,
        timeout_ms=9000,
        voter_id=voter_id,
        voter_directory_id=folder,
        listeners=[{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}],
    )


def remove_voter(voter_id: int, folder: uuid.UUID, cluster_id: str | None = None) -> Ask:
    return ask("RemoveRaftVoter", cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=folder)


ACL_RULE = {
    "resource_type": TOPIC_RESOURCE,
    "resource_name": "$",
    "resource_pattern_type": LITERAL,
    "principal": "User:u",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}
ACL_FILTER = {
    "resource_type_filter": TOPIC_RESOURCE,
    "resource_name_filter": "$",
    "pattern_type_filter": LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}


def find_transaction() -> Ask:
    """Wait until there is a coordinator of transactions; ours says that there will be none."""
    return replace(at(3, ask("FindCoordinator", key="$", key_type=1)), shown=False)


SCENARIOS = (
    scenario(
        "elections that are not needed",
        topic(partitions=2),
        elect(0, 1),
        elect(0, 2, -1),
        elect(1, kind=UNCLEAN),
        elect(0, topic="$-absent"),
        elect(0, topic="a b"),
        elect(),
        replace(ask("ElectLeaders", election_type=PREFERRED, topic_partitions=None, timeout_ms=9000), only_own=True),
        about="ElectLeaders",
    ),
    scenario("elections of an unknown kind", topic(), elect(0, kind=7), about="ElectLeaders 1+"),
    scenario(
        "reassignments",
        topic(partitions=2),
        reassign([1]),
        reassign([1], [1]),
        reassign([2]),
        reassign([1, 2], [1, 1], [1]),
        reassign([], None),
        reassign([1], topic="$-absent"),
        reassign([-1]),
        about="AlterPartitionReassignments",
    ),
    scenario(
        "reassignments that keep the number of replicas",
        topic(),
        reassign([1], allow_replication_factor_change=False),
        reassign([1, 2], allow_replication_factor_change=False),
        about="AlterPartitionReassignments 1",
    ),
    scenario(
        "replicas in another folder",
        topic(),
        ask("AlterReplicaLogDirs", dirs=[{"path": ELSEWHERE, "topics": [{"name": "$", "partitions": [0, 1]}]}]),
        ask("AlterReplicaLogDirs", dirs=[{"path": ELSEWHERE, "topics": [{"name": "$-absent", "partitions": [0]}]}]),
        ask("AlterReplicaLogDirs", dirs=[]),
        about="AlterReplicaLogDirs",
    ),
    scenario(
        "levels of features",
        update_features(("group.version", 1)),
        update_features(("group.version", 1), validate_only=True),
        update_features(("group.version", 2)),
        update_features(("group.version", -1)),
        update_features(("no.such.version", 1)),
        update_features(("group.version", 0)),
        about="UpdateFeatures",
    ),
    scenario(
        "levels of features, downwards",
        update_features(("group.version", 1), kind=SAFE_DOWNGRADE),
        update_features(("group.version", 2), kind=SAFE_DOWNGRADE),
        update_features(("group.version", 1), kind=7),
        about="UpdateFeatures 1+",
    ),
    scenario(
        "the quorum",
        describe_quorum(("__cluster_metadata", 0)),
        about="DescribeQuorum",
        differs=("the log of the quorum",),
    ),
    scenario(
        "what has no quorum",
        describe_quorum(("__cluster_metadata", 1)),
        describe_quorum(("$", 0)),
        about="DescribeQuorum",
    ),
    scenario(
        "voters that come and go",
        add_voter(2, UNKNOWN_ID),
        add_voter(2, NO_ID),
        add_voter(-1, UNKNOWN_ID),
        add_voter(2, UNKNOWN_ID, cluster_id="another"),
        remove_voter(2, UNKNOWN_ID),
        remove_voter(2, NO_ID),
        remove_voter(2, UNKNOWN_ID, cluster_id="another"),
    ),
    scenario("unregister an unknown broker", ask("UnregisterBroker", broker_id=77)),
    scenario("describe acls", ask("DescribeAcls", **ACL_FILTER), about="DescribeAcls"),
    scenario("create acls", ask("CreateAcls", creations=[ACL_RULE, ACL_RULE]), about="CreateAcls"),
    scenario("delete acls", ask("DeleteAcls", filters=[ACL_FILTER, ACL_FILTER]), about="DeleteAcls"),
    scenario(
        "create a delegation token",
        ask("CreateDelegationToken", renewers=[], max_lifetime_ms=-1),
        ask(
            "CreateDelegationToken",
            owner_principal_type="User",
            owner_principal_name="$",
            renewers=[{"principal_type": "User", "principal_name": "r"}],
            max_lifetime_ms=-1,
        ),
        about="CreateDelegationToken",
    ),
    scenario(
        "renew a delegation token",
        ask("RenewDelegationToken", hmac=b"h", renew_period_ms=-1),
        about="RenewDelegationToken",
    ),
    scenario(
        "end a delegation token",
        ask("ExpireDelegationToken", hmac=b"h", expiry_time_period_ms=-1),
        about="ExpireDelegationToken",
    ),
    scenario(
        "describe delegation tokens", ask("DescribeDelegationToken", owners=None), about="DescribeDelegationToken"
    ),
    scenario(
        "take a password away",
        ask("AlterUserScramCredentials", deletions=[{"name": "$", "mechanism": SCRAM_SHA_256}], upsertions=[]),
        ask("AlterUserScramCredentials", deletions=[], upsertions=[]),
        differs=("no passwords",),
    ),
    scenario("a handshake where nobody asks", ask("SaslHandshake", mechanism="PLAIN"), about="SaslHandshake"),
    scenario(
        "authentication where nobody asks", ask("SaslAuthenticate", auth_bytes=b"secret"), about="SaslAuthenticate"
    ),
    scenario(
        "transactions that there are not",
        find_transaction(),
        until(
            ask("DescribeTransactions", transactional_ids=["$", "$-b"]),
            {"transaction_states.0.error_code": 105},
            shown=True,
        ),
    ),
    scenario(
        "list transactions",
        until(
            ask("ListTransactions", state_filters=["Ongoing", "$"], producer_id_filters=[77]),
            {"error_code": 0},
            shown=True,
        ),
        about="ListTransactions",
    ),
    scenario(
        "loggers and the metrics of clients",
        describe(BROKER_LOGGER, "1", keys=["org.apache.kafka"]),
        describe(CLIENT_METRICS, "$", keys=["interval.ms"]),
        change(("interval.ms", SET, "5000"), kind=CLIENT_METRICS, validate_only=True),
        differs=("no loggers and client metrics",),
    ),
    scenario(
        "groups of other kinds",
        ask("ShareGroupDescribe", group_ids=["$"]),
        ask("StreamsGroupDescribe", group_ids=["$"]),
        differs=("no share groups and streams groups",),
    ),
    scenario(
        "a topic of the coordinators",
        at(
            12,
            ask("Metadata", topics=[{"name": "__consumer_offsets", "topic_id": None}], allow_auto_topic_creation=False),
        ),
        differs=("no internal topics",),
    ),
)
