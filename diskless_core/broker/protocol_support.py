"""docs/protocol_support.md, written from the table of APIs."""

from __future__ import annotations

from collections.abc import Iterable

from diskless_core.broker.apis import CLIENT_APIS, INTER_BROKER_APIS
from diskless_core.broker.dispatch import Api, ApiVersionRange

_HEAD = """# Protocol support

Generated from the table of APIs by `make docs`; do not edit.

The Kafka APIs that a broker serves on its client listeners, with the versions that it answers.

| API | key | versions | in ApiVersions |
|---|---|---|---|
"""

_TAIL = """
Versions in brackets are served and advertised with `unstable.api.versions.enable=true` only: they may change yet. In
Metadata 14 and DescribeTopicPartitions 1 a client says its rack
([KIP-1181](protocol_extensions.md#the-rack-of-a-client)).

Produce is advertised from version 0 on because librdkafka takes a higher minimum for a broker that knows no
compression; versions 0 to 2 are refused, as by Apache Kafka 4. A request with an unknown key or version closes its
connection; only ApiVersions answers with the versions that it has.

Fetch sessions are not kept: every Fetch is answered with session id 0, which tells the client to send full requests.
A group speaks the classic protocol or the consumer protocol (KIP-848), never both at once: a live group is not
migrated, as with Kafka's `group.consumer.migration.policy=disabled`. One without members becomes a group of whichever
protocol its next member speaks, and keeps its offsets. A classic member is refused by a consumer group with
INCONSISTENT_GROUP_PROTOCOL, a consumer by a classic group with GROUP_ID_NOT_FOUND. `group.version` is 1.
A change in a group of the consumer protocol is assigned at once, as by Kafka with
`group.consumer.assignment.interval.ms=0` (KIP-1263).
There are no transactions yet: a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

Some APIs are answered so that tools and libraries, which look for them, know what is there:

| APIs | answer |
|---|---|
| ElectLeaders | ELECTION_NOT_NEEDED: every partition has a [leader](cluster.md#what-leader-means-here), always |
| AlterPartitionReassignments | a partition is at every broker, so it may be assigned to any one of them |
| AlterReplicaLogDirs | a partition may go where it is; all else is unknown |
| UpdateFeatures | a feature may be set to the level that it has; `metadata.version` has that of Kafka 4.2 |
| DescribeQuorum | every broker is a voter; offsets and epoch are those of the cluster shard |
| AddRaftVoter, RemoveRaftVoter | UNSUPPORTED_VERSION, as by Kafka with `controller.quorum.voters` |
| UnregisterBroker | a broker that is fenced is forgotten; INVALID_REQUEST for one that runs |
| DescribeAcls, CreateAcls, DeleteAcls | SECURITY_DISABLED, as by Kafka without an authorizer |
| the four of delegation tokens | DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as by Kafka's plaintext listeners |
| SaslHandshake, SaslAuthenticate | ILLEGAL_SASL_STATE, as by Kafka's plaintext listeners |
| AlterUserScramCredentials | UNSUPPORTED_VERSION |
| the other APIs of transactions | as above; DescribeTransactions and ListTransactions find none |
| those of share groups and streams groups | UNSUPPORTED_VERSION, as by a Kafka without these features |
"""


_INTER_BROKER = """
The [inter-broker listener](operations.md#the-inter-broker-listener), where there is one, serves all of these, and what
brokers ask each other: the Diskless coordinator's APIs, described on [protocol extensions](protocol_extensions.md), and
what they ask [the controller](cluster.md#membership), for themselves and for their clients.

| API | key | versions | in ApiVersions |
|---|---|---|---|
"""


def render() -> str:
    """The page as Markdown."""
    of_brokers = [api for key, api in INTER_BROKER_APIS.items() if key not in CLIENT_APIS]
    return _HEAD + _rows(CLIENT_APIS.values()) + _INTER_BROKER + _rows(of_brokers) + _TAIL


def _rows(apis: Iterable[Api]) -> str:
    return "".join(map(_row, apis))


def _row(api: Api) -> str:
    unstable = f" ({api.unstable_newest})" if api.unstable_newest is not None else ""
    return f"| {api.name} | {api.key} | {_span(api.supported)}{unstable} | {_span(api.advertised)}{unstable} |\n"


def _span(versions: ApiVersionRange) -> str:
    _, oldest, newest = versions
    return str(oldest) if oldest == newest else f"{oldest}-{newest}"
