"""How Produce and Fetch name topics, by name or by id, and what is told of a topic that goes meanwhile (KIP-516)."""

from __future__ import annotations

import uuid
from typing import NamedTuple, Protocol

from diskless_core.cluster.topics import TopicInfo
from diskless_core.diskless.commands import PartitionKey
from diskless_core.protocol.errors import ErrorCode

TOPIC_IDS_SINCE = 13
"""The version of Produce and of Fetch that names topics by id."""


class TopicLookup(Protocol):
    """What this node knows of topics now."""

    def by_name(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: uuid.UUID) -> TopicInfo | None: ...


class RequestedTopic(NamedTuple):
    """A topic of a request.

    Attributes:
        info: what was known of it when the request came; None when there was no such topic.
        missing: what is told of all its partitions then.
    """

    info: TopicInfo | None
    missing: ErrorCode

    def partition(self, index: int) -> tuple[TopicInfo, PartitionKey] | ErrorCode:
        """The topic with the key of one of its partitions, or why there is none."""
        if self.info is None:
            return self.missing
        key = self.info.key(index)
        return (self.info, key) if key is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def client_error(
        self, error: ErrorCode, topics: TopicLookup, replaced: ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID
    ) -> ErrorCode:
        """The error for the client: one that asked by id is told when it is the id that went.

        Args:
            replaced: for a topic whose name another one has by now.
        """
        if self.info is None:
            return error
        if error is ErrorCode.UNKNOWN_TOPIC_ID:  # a coordinator says so, however the client asked
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_by_id = self.missing is ErrorCode.UNKNOWN_TOPIC_ID
        if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not is_by_id:
            return error
        if topics.by_id(self.info.topic_id) is not None:
            return error
        return replaced if topics.by_name(self.info.name) is not None else ErrorCode.UNKNOWN_TOPIC_ID


def find(topics: TopicLookup, version: int, name: str, topic_id: uuid.UUID | None) -> RequestedTopic:
    """The topic that a request of this version means. The id zero, decoded as None, is nobody's."""
    if version >= TOPIC_IDS_SINCE:
        info = topics.by_id(topic_id) if topic_id is not None else None
        return RequestedTopic(info, ErrorCode.UNKNOWN_TOPIC_ID)
    return RequestedTopic(topics.by_name(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
