"""ApiVersions, DescribeCluster, FindCoordinator, InitProducerId, DescribeProducers, ListConfigResources."""

from __future__ import annotations

import struct

from tests.differential.language import Ask, Raw, The, ask, scenario
from tests.differential.words import batch, init_producer_id, new_producer, produce, topic

GROUP, TRANSACTION, SHARE = 0, 1, 2


def unknown_version(version: int) -> Raw:
    return Raw(data=struct.pack(">hhih4sb", 18, version, 1, 4, b"wire", 0), api="ApiVersions", version=0)


def software(name: str, version: str) -> Ask:
    return ask("ApiVersions", client_software_name=name, client_software_version=version)


def find(*keys: str, kind: int = GROUP) -> Ask:
    return ask("FindCoordinator", key=keys[0] if keys else "", key_type=kind, coordinator_keys=list(keys))


def describe_producers(*partitions: int, topic: str = "$") -> Ask:
    return ask("DescribeProducers", topics=[{"name": topic, "partition_indexes": list(partitions)}])


SCENARIOS = (
    scenario(
        "the versions of the apis",
        software("wire", "1.0"),
        about="ApiVersions",
        differs=("other apis",),
    ),
    scenario(
        "bad names of a client's software",
        *(software(name, "1") for name in ("", " ", "a b", "-a", "a-", "ä", "a.b-c")),
        *(software("wire", version) for version in ("", " ", "1 0", "-1", "1-")),
        about="ApiVersions 3+",
        differs=("other apis",),
    ),
    scenario(
        "versions of ApiVersions that do not exist",
        *map(unknown_version, (5, 99, 32767, -1)),
    ),
    scenario(
        "describe the cluster",
        ask("DescribeCluster", include_cluster_authorized_operations=False, endpoint_type=1),
        about="DescribeCluster",
    ),
    scenario(
        "describe the cluster with authorized operations, and of another kind",
        ask("DescribeCluster", include_cluster_authorized_operations=True, endpoint_type=1),
        ask("DescribeCluster", include_cluster_authorized_operations=False, endpoint_type=2),
        ask("DescribeCluster", include_cluster_authorized_operations=False, endpoint_type=3),
        ask("DescribeCluster", endpoint_type=1, include_fenced_brokers=True),
        about="DescribeCluster",
    ),
    scenario("find a group's coordinator", find("$"), find("$", "$-b"), about="FindCoordinator"),
    scenario(
        "find coordinators of odd keys",
        find(""),
        find(),
        find("$", kind=SHARE),
        find("$", kind=7),
        find("$", kind=-1),
        about="FindCoordinator",
    ),
    scenario(
        "find a transaction's coordinator",
        find("$", kind=TRANSACTION),
        about="FindCoordinator 1+",
        differs=("no transactions",),
    ),
    scenario(
        "producer ids",
        init_producer_id(),
        init_producer_id(),
        about="InitProducerId",
    ),
    scenario(
        "producer ids of before",
        new_producer(),
        init_producer_id(producer_id=The("pid"), producer_epoch=0),
        init_producer_id(producer_id=The("pid"), producer_epoch=5),
        init_producer_id(producer_id=2**40, producer_epoch=0),
        init_producer_id(producer_id=5),
        init_producer_id(producer_epoch=5),
        init_producer_id(transaction_timeout_ms=-5),
        about="InitProducerId 3 5",
    ),
    scenario("an empty transactional id", init_producer_id(transactional_id=""), about="InitProducerId ends"),
    scenario(
        "describe producers",
        topic(partitions=2),
        describe_producers(0, 1, 2),
        new_producer(),
        produce(batch(b"a", b"b", producer_id=The("pid"), producer_epoch=3, base_sequence=0)),
        produce(batch(b"c", producer_id=The("pid"), producer_epoch=3, base_sequence=2)),
        describe_producers(0, topic="$-absent"),
        describe_producers(0, topic="a b"),
        describe_producers(0, -1),
        ask("DescribeProducers", topics=[]),
        differs=("the last time of a producer",),
    ),
)
