"""Whatever is done to topics and their records in whatever order: both brokers answer alike.

`--hypothesis-profile=long` walks for minutes instead of seconds.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.differential.conftest import Pair
from tests.differential.language import Made, Step, The, scenario
from tests.differential.player import Player, compare
from tests.differential.words import (
    ALL_BYTES,
    at,
    create_topics,
    delete_records,
    delete_topics,
    fetch,
    forgotten_producer,
    gone,
    list_offsets,
    new_topic,
    produce,
    ready,
    timed,
    topic,
)
from tests.support.batches import NOW_MS, with_header

ALLOWED = (
    "the append time of a duplicate",
    "a retry of an old batch",
    "the latest timestamp after a deletion",
    "topics created by Metadata",
)
T = NOW_MS - 100_000
OTHER = "$-other"
BY_NAME_UNTIL = 12

_walks = itertools.count(1)

topics = st.sampled_from(["$", "$", "$", OTHER])
partitions = st.sampled_from([0, 0, 0, 1, 1, 2, -1])
offsets = st.integers(-2, 12)
times = st.integers(0, 30).map(lambda shift: T + shift)
plain_batches = st.builds(
    lambda stamps, codec: timed(*stamps, compression=codec), st.lists(times, min_size=1, max_size=4), st.integers(0, 4)
)
numbered_batches = st.builds(
    lambda stamps, epoch, sequence: Made(
        with_header,
        (timed(*stamps),),
        {"producer_id": The("pid"), "producer_epoch": epoch, "base_sequence": sequence},
    ),
    st.lists(times, min_size=1, max_size=2),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(0, 6),
)


def _produced(records: Any, name: str, partition: int, version: int, acks: int) -> tuple[Step, ...]:
    return (at(version, produce(records, topic=name, topic_id=None, partition=partition, acks=acks)),)


def _fetched(name: str, partition: int, offset: int, budget: int, version: int) -> tuple[Step, ...]:
    return (at(version, fetch(offset, topic=name, topic_id=None, partition=partition, max_bytes=budget)),)


def _listed(name: str, partition: int, timestamp: int, version: int) -> tuple[Step, ...]:
    return (at(version, list_offsets(timestamp, topic=name, partition=partition)),)


def _created(name: str) -> tuple[Step, ...]:
    return (create_topics(new_topic(name, 2)), *ready(name, 2))


def _deleted(name: str) -> tuple[Step, ...]:
    return (delete_topics(name), *gone(name, 2))


steps = st.one_of(
    st.builds(
        _produced,
        st.one_of(plain_batches, numbered_batches),
        topics,
        partitions,
        st.integers(7, BY_NAME_UNTIL),
        st.sampled_from([-1, 1]),
    ),
    st.builds(
        _fetched, topics, partitions, offsets, st.sampled_from([1, 150, ALL_BYTES]), st.integers(4, BY_NAME_UNTIL)
    ),
    st.builds(_listed, topics, partitions, st.one_of(st.integers(-5, -1), times), st.integers(1, 10)),
    st.builds(
        lambda name, partition, to: (delete_records(to, topic=name, partition=partition),), topics, partitions, offsets
    ),
    st.builds(_created, topics),
    st.builds(_deleted, topics),
)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(walk=st.lists(steps, min_size=3, max_size=25))
def test_both_brokers_answer_a_random_walk_alike(pair: Pair, walk: list[tuple[Step, ...]]) -> None:
    name = f"walk-{next(_walks)}-"
    played = replace(scenario("a random walk", topic(partitions=2), *forgotten_producer(), *walk), differs=ALLOWED)

    kafka = Player(pair.kafka, name, played, -1).play()
    diskless = Player(pair.diskless, name, played, -1).play()

    compare(kafka, diskless, played, all_differences_show=False)
