"""How the cluster shard begins where a backup is restored, and which topics came or went between the points. Pure.

Its point is the last one. So whatever it has handed out and another point has (producer ids, topics, node ids), it
knows of. The other way round there are two differences, and a controller mends both where the backup is restored:

- A topic, or some partitions of it, came after the point of its Diskless coordinator. The cluster shard says that they
  are settled, so no controller would create them: here they are unsettled again.
- A topic went after the point of its Diskless coordinator. A controller deletes partitions of topics that are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from diskless_core.cluster.membership.tables import BROKERS, NODE_IDS
from diskless_core.cluster.tables import NEXT_PRODUCER_ID, NOMINATIONS, ONLY_ROW, PLACEMENTS, TOPICS, UNSETTLED
from diskless_core.coordinator.tables import State
from diskless_core.plugin.coordinator_store import Row

PRODUCER_IDS_AHEAD = 1 << 40
"""How far the producer ids of a restored cluster lie above those of the original, which goes on giving out ids after
its point. Clients that move from one to the other keep theirs, and no new producer may get the same. A thousand ids a
second make so many in 34 years, and there is room for eight million restores one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsBetween:
    """What became of topics between the points.

    Attributes:
        first_lacking: the first partition that no point of a Diskless coordinator has, by topic ids.
        came: names of these topics.
        gone: names of topics that Diskless coordinators have and the cluster shard does not.
    """

    first_lacking: Mapping[bytes, int]
    came: Collection[str]
    gone: Collection[str]


def topics_between(
    cluster: State, names: Mapping[bytes, str], partitions: Mapping[bytes, Collection[int]]
) -> TopicsBetween:
    """Compare the cluster shard's topics with those of the Diskless coordinators.

    Args:
        names: of the topics that Diskless coordinators have, by ids.
        partitions: what they have of each topic, all of them together, by ids.
    """
    first_lacking: dict[bytes, int] = {}
    for (topic_id,), placements in cluster.rows(PLACEMENTS):
        present = partitions.get(topic_id, ())
        lacking = next((number for number in range(len(placements)) if number not in present), None)
        if lacking is not None:
            first_lacking[topic_id] = lacking
    topics = {topic_id: topic.name for (topic_id,), topic in cluster.rows(TOPICS)}
    return TopicsBetween(
        first_lacking=first_lacking,
        came=sorted(name for topic_id, name in topics.items() if topic_id in first_lacking),
        gone=sorted(name for topic_id, name in names.items() if topic_id not in topics),
    )


def beginning_rows(cluster: State, topics: TopicsBetween) -> Mapping[str, list[Row]]:
    """Tables by name that the cluster shard begins with instead of its own: it has no brokers there."""
    unsettled = {topic_id: first for (topic_id,), first in cluster.rows(UNSETTLED)}
    for topic_id, first in topics.first_lacking.items():
        unsettled[topic_id] = min(first, unsettled.get(topic_id, first))
    next_id = cluster.committed(NEXT_PRODUCER_ID, ONLY_ROW) or 0
    return {
        BROKERS.name: [],
        NODE_IDS.name: [],
        NOMINATIONS.name: [],
        UNSETTLED.name: [UNSETTLED.row((topic_id,), first) for topic_id, first in sorted(unsettled.items())],
        NEXT_PRODUCER_ID.name: [NEXT_PRODUCER_ID.row(ONLY_ROW, next_id + PRODUCER_IDS_AHEAD)],
    }
