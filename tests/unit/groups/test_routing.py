"""Which groups shard has a group: the rule of Apache Kafka, value by value."""

from __future__ import annotations

from collections import Counter

import pytest

from diskless_core.groups.routing import shard_index


@pytest.mark.parametrize(
    ("group_id", "of_50"),
    [
        ("", 0),
        ("a", 97 % 50),
        ("ab", (97 * 31 + 98) % 50),
        ("console-consumer-1", 24),
        ("polygenelubricants", 0),
        ("grüße", 23),
        ("\N{PARTY POPPER}", 11),
    ],
)
def test_the_shard_of_a_group_is_the_one_that_kafka_computes(group_id: str, of_50: int) -> None:
    assert shard_index(group_id, 50) == of_50


def test_one_shard_has_all_groups_and_of_several_each_has_some() -> None:
    groups = [f"group-{number}" for number in range(1_000)]
    assert {shard_index(group, 1) for group in groups} == {0}
    assert set(Counter(shard_index(group, 16) for group in groups)) == set(range(16))
