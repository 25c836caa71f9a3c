"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import Any

from tests.differential.language import Ask, ask, scenario
from tests.differential.words import batch, delete_records, fetch, list_offsets, produce, timed, topic
from tests.support.batches import NOW_MS

T = NOW_MS - 100_000
SOME_TIMES = (*topic(partitions=3), produce(timed(T, T + 10, T + 5), timed(T + 7)), produce(timed(T + 20, T + 20)))


def epoch_ends(*epochs: int, current: int = -1, topic: str = "$", replica: int = -1) -> Ask:
    """OffsetForLeaderEpoch of partitions from 0 on."""
    partitions: list[dict[str, Any]] = [
        {"partition": place, "current_leader_epoch": current, "leader_epoch": epoch}
        for place, epoch in enumerate(epochs)
    ]
    return ask("OffsetForLeaderEpoch", replica_id=replica, topics=[{"topic": topic, "partitions": partitions}])


SCENARIOS = (
    scenario(
        "list the offsets of an empty partition",
        topic(),
        *(list_offsets(timestamp) for timestamp in (-1, -2, 0, T)),
        about="ListOffsets",
    ),
    scenario(
        "list offsets by time",
        SOME_TIMES,
        *(list_offsets(T + shift) for shift in (-1, 0, 1, 5, 6, 10, 11, 20, 21, 10**12)),
        list_offsets(-1, -1, -1),
        list_offsets(-2, -2, -2),
        about="ListOffsets",
    ),
    scenario(
        "list offsets by time in compressed batches",
        topic(),
        *(produce(timed(T, T + 10, T + 5, compression=codec)) for codec in (1, 2, 3, 4)),
        *(list_offsets(T + shift) for shift in (0, 1, 5, 6, 10, 11)),
        list_offsets(-3),
    ),
    scenario("list the latest timestamp", SOME_TIMES, list_offsets(-3, -3, -3), about="ListOffsets"),
    scenario("list the earliest local offset", SOME_TIMES, list_offsets(-4, -4), about="ListOffsets"),
    scenario("list the latest tiered offset", SOME_TIMES, list_offsets(-5, -5), about="ListOffsets"),
    scenario("list an unknown special", SOME_TIMES, *map(list_offsets, (-6, -7, -100)), about="ListOffsets"),
    scenario(
        "list specials of what is not there",
        topic(),
        *(list_offsets(special, topic="$-absent") for special in (-1, -3, -4, -5, -6, -7)),
        about="ListOffsets",
    ),
    scenario(
        "list offsets of what is not there",
        topic(),
        list_offsets(-1, -1),
        list_offsets(-1, topic="$-absent"),
        list_offsets(-1, partition=-1),
        ask("ListOffsets", replica_id=-1, isolation_level=0, topics=[], timeout_ms=5000),
        about="ListOffsets",
    ),
    scenario(
        "list offsets with a leader epoch",
        topic(),
        produce(batch()),
        *(list_offsets(-1, epoch=epoch) for epoch in (0, 1, -2)),
        about="ListOffsets 4+",
    ),
    scenario(
        "list the offsets of what is committed",
        topic(),
        produce(batch()),
        list_offsets(-1, isolation_level=1),
        list_offsets(-3, isolation_level=1),
        about="ListOffsets 7+",
    ),
    scenario(
        "list offsets after a deletion",
        topic(),
        produce(timed(T, T + 10, T + 5)),
        produce(timed(T + 7)),
        delete_records(2),
        *map(list_offsets, (-1, -2, -4, T, T + 6, T + 7, T + 10)),
        delete_records(-1),
        *map(list_offsets, (-1, -2, -4, T)),
    ),
    scenario(
        "list the latest timestamp when its record is deleted",
        topic(),
        produce(timed(T, T + 10, T + 5)),
        produce(timed(T + 7)),
        delete_records(2),
        list_offsets(-3),
        delete_records(-1),
        list_offsets(-3),
        about="ListOffsets 7 11",
        differs=("the latest timestamp after a deletion",),
    ),
    scenario(
        "list a partition twice in a request",
        topic(),
        ask(
            "ListOffsets",
            replica_id=-1,
            isolation_level=0,
            timeout_ms=5000,
            topics=[
                {
                    "name": "$",
                    "partitions": [
                        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
                        for timestamp in (-1, -2)
                    ],
                }
            ],
        ),
        about="ListOffsets 1 10",
    ),
    scenario(
        "ends of leader epochs",
        topic(partitions=2),
        produce(batch(b"a", b"b")),
        *(epoch_ends(epoch, epoch, epoch) for epoch in (0, 1, 5, -1)),
        epoch_ends(0, current=0),
        epoch_ends(0, current=1),
        epoch_ends(0, topic="$-absent"),
        about="OffsetForLeaderEpoch",
    ),
    scenario(
        "delete records",
        topic(partitions=2),
        produce(batch(b"a", b"b", b"c"), batch()),
        produce(batch(b"d")),
        *map(delete_records, (0, 2, 1, 2, 5, -2, -1, 4, 0)),
        delete_records(0, 1, 0),
        delete_records(0, partition=-1),
        delete_records(0, topic="$-absent"),
        fetch(4),
        produce(batch(b"e")),
        fetch(4),
        about="DeleteRecords",
    ),
)
