"""Draws commits for a shard: batches of all kinds that an honest or a confused producer sends, for what is there."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from hypothesis import strategies as st

from diskless_core.diskless.commands import CommitBatch, CommitFile
from diskless_core.wal.format import object_key
from tests.support.commit_model import SEQUENCES, CommitModel
from tests.support.shards import batch, commit_of

PRODUCER = 7
LAST_SEQUENCE = SEQUENCES - 1


class Wanted(NamedTuple):
    """A batch as it is drawn: which one it is depends on what was sent before."""

    topic: int
    partition: int
    kind: str
    count: int
    size: int
    timestamp_type: int
    back: int


wanted_batches = st.builds(
    Wanted,
    topic=st.sampled_from([0, 0, 0, 1, 2]),
    partition=st.sampled_from([0, 0, 0, 1, 2]),
    kind=st.sampled_from(
        ["plain", "next", "next", "next", "repeat", "gap", "new epoch", "bad epoch", "old epoch", "wrap"]
    ),
    count=st.integers(1, 3),
    size=st.sampled_from([50, 50, 600_000]),
    timestamp_type=st.sampled_from([0, 0, 1]),
    back=st.integers(0, 6),
)

owner_lists = st.sampled_from([(0,), (0,), (0, 1), (1, 0), (2, 0, 1)])


class Requests:
    """Makes requests that fit a model. `created_ms` is when each object was made."""

    def __init__(self) -> None:
        self.topic_ids: list[bytes] = []
        self.created_ms: dict[str, int] = {}
        self._segments = 0

    def new_segment_id(self) -> bytes:
        self._segments += 1
        return uuid.UUID(int=self._segments).bytes

    def new_topic(self) -> bytes:
        topic_id = uuid.UUID(int=len(self.topic_ids) + 2).bytes
        self.topic_ids.append(topic_id)
        return topic_id

    def topic(self, back: int) -> bytes:
        """One of the latest, whether it exists still or not."""
        return self.topic_ids[-1 - back % len(self.topic_ids)]

    def new_key(self, created_ms: int) -> str:
        number = len(self.created_ms) + 1
        key = object_key("wal", created_ms, uuid.UUID(int=number))
        self.created_ms[key] = created_ms
        return key

    def commit(
        self, model: CommitModel, wanted: list[Wanted], key: str, owner_ids: tuple[int, ...] = (0,)
    ) -> CommitFile:
        batches: list[CommitBatch] = []
        for one in wanted:
            topic_id = self.topic(one.topic)
            sent = _sent(model, batches, topic_id, one.partition)
            made = batch(
                one.partition,
                topic=topic_id,
                size=one.size,
                count=one.count,
                producer=_producer(sent, one.kind, one.back),
                max_timestamp=one.back * 10,
                timestamp_type=one.timestamp_type,
            )
            if one.kind == "repeat" and sent:
                made = sent[-1 - one.back % len(sent)]._replace(size=one.size)
            batches.append(made)
        return commit_of(key, *batches, owner_ids=owner_ids)


def _sent(model: CommitModel, batches: list[CommitBatch], topic_id: bytes, partition: int) -> list[CommitBatch]:
    """What the producer has sent to a partition, and is about to send with this object."""
    known = model.topics.get(topic_id, {}).get(partition)
    earlier = [one.batch for one in known.batches] if known is not None else []
    now = [one for one in batches if (one.topic_id, one.partition) == (topic_id, partition)]
    return [one for one in (*earlier, *now) if one.producer_id == PRODUCER]


def _producer(sent: list[CommitBatch], kind: str, back: int) -> tuple[int, int, int] | None:
    """Producer id, epoch and base sequence."""
    epoch = sent[-1].producer_epoch if sent else 0
    following = (sent[-1].last_sequence + 1) % SEQUENCES if sent else 0
    match kind:
        case "plain" | "repeat":
            return None
        case "next":
            return PRODUCER, epoch, following
        case "gap":
            return PRODUCER, epoch, (following + 1 + back) % SEQUENCES
        case "new epoch":
            return PRODUCER, epoch + 1, 0
        case "bad epoch":
            return PRODUCER, epoch + 1, 5
        case "old epoch":
            return PRODUCER, max(0, epoch - 1), following
    return PRODUCER, epoch + 1 if sent else 0, 0 if sent else LAST_SEQUENCE - back
