"""The one thing that the coordinator understands of consumers' metadata: the topics that they subscribe to."""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


class SubscriptionError(ValueError):
    """The metadata is not a consumer's."""


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Topics of a ConsumerProtocolSubscription. All its versions begin as version 0 does, with version and topics.

    Raises:
        SubscriptionError: it is something else.
    """
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            raise SubscriptionError(f"version {version} with {count} topics is no subscription")
        pos = _HEAD.size
        topics = set()
        for _ in range(count):
            start = pos + _LENGTH.size
            pos = start + _LENGTH.unpack_from(metadata, pos)[0]
            if not start <= pos <= len(metadata):
                raise SubscriptionError("a topic reaches beyond the subscription")
            topics.add(metadata[start:pos].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise SubscriptionError("the subscription is malformed") from error
    return frozenset(topics)
