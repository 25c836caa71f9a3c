"""How requests about offsets name topics: by name, and from version 10 on by id."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from diskless_core.protocol.errors import ErrorCode

TOPIC_IDS_SINCE = 10
"""The version of OffsetCommit and of OffsetFetch that names topics by id."""


CatchUp = Callable[[], Awaitable[None]]
"""Returns when this node knows all changes of topics that a client may know of. It raises CoordinatorLoadingError where
this node knows that it does not."""


class NamedTopic(Protocol):
    """A topic that exists."""

    @property
    def name(self) -> str: ...


class TopicCatalog(Protocol):
    """What the coordinator needs to know of topics, as of now."""

    def name_of(self, topic_id: uuid.UUID) -> str | None: ...

    def id_of(self, name: str) -> uuid.UUID | None: ...

    def partition_count(self, name: str) -> int | None: ...

    def all(self) -> Iterator[NamedTopic]:
        """Every topic."""
        ...


class RequestedTopic(NamedTuple):
    """A topic of a request.

    Attributes:
        name: None when the request has an id that no topic has.
        topic_id: None when the request has a name that no topic has.
        error: what a request that needs an existing topic is told.
    """

    name: str | None
    topic_id: uuid.UUID | None
    error: ErrorCode


def resolve(name: str, topic_id: uuid.UUID | None, version: int, topics: TopicCatalog) -> RequestedTopic:
    """Which topic an entry of OffsetCommit's or OffsetFetch's `topics` means."""
    if version >= TOPIC_IDS_SINCE:
        known = topics.name_of(topic_id) if topic_id is not None else None
        return RequestedTopic(known, topic_id, ErrorCode.UNKNOWN_TOPIC_ID if known is None else ErrorCode.NONE)
    known_id = topics.id_of(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known_id is None else ErrorCode.NONE
    return RequestedTopic(name, known_id, error)


class _AskedTopic(Protocol):
    @property
    def topic_id(self) -> uuid.UUID | None: ...


def may_mean_others(asked: Iterable[_AskedTopic], version: int, topics: TopicCatalog) -> bool:
    """Whether these topics may be others to a node that knows more than this one.

    A name may have gone to another topic, and an offset that is committed under the id of the one before goes with
    that one. An id that is known here means one topic for ever.
    """
    if version < TOPIC_IDS_SINCE:
        return True
    return any(topic.topic_id is None or topics.name_of(topic.topic_id) is None for topic in asked)
