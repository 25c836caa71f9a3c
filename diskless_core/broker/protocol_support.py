"""docs/protocol_support.md, written from the table of handlers."""

from __future__ import annotations

from collections.abc import Iterable

from diskless_core.broker.dispatch import api_name
from diskless_core.broker.handlers import all_handlers, inter_broker_handlers
from diskless_core.protocol import api_versions

_HEAD = """# Protocol support

Generated from the table of handlers by `make docs`; do not edit.

The Kafka APIs that a broker serves on its client listeners, with the versions that it answers.

| API | key | versions | in ApiVersions |
|---|---|---|---|
"""

_TAIL = """
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
There are no transactions yet: a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which no client retries.
"""


_INTER_BROKER = """
The [inter-broker listener](operations.md#the-inter-broker-listener), where there is one, serves all of these, and the
Diskless coordinator's APIs: [protocol extensions](protocol_extensions.md).

| API | key | versions | in ApiVersions |
|---|---|---|---|
"""


def render() -> str:
    """The page as Markdown."""
    of_clients = all_handlers()
    of_brokers = [key for key in inter_broker_handlers() if key not in of_clients]
    return _HEAD + _rows(of_clients) + _INTER_BROKER + _rows(of_brokers) + _TAIL


def _rows(served: Iterable[int]) -> str:
    rows = [
        f"| {api_name(key)} | {key} | {_span(*supported[1:])} | {_span(oldest, newest)} |\n"
        for key, oldest, newest in api_versions.advertised(served)
        for supported in [api_versions.supported_versions(key)]
    ]
    return "".join(rows)


def _span(oldest: int, newest: int) -> str:
    return str(oldest) if oldest == newest else f"{oldest}-{newest}"
