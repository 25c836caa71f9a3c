"""A kind of shard is whole: it has a room, a setting that counts it, records with a meaning, and is on the pages."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from diskless_core.broker.coordinators import SHARD_ROOMS
from diskless_core.cli.record_reference import EVERY_SHARD, MEANINGS
from diskless_core.config.broker import BrokerConfig
from diskless_core.plugin.config import property_name
from diskless_core.shards import SHARD_KINDS, SHARD_NAMES, ShardKind, parse_shard, short_name
from tests.architecture.source_files import ROOT, read

ROLES = ("records", "tables", "state_machine", "shard")
"""What the files of every room are called."""

kinds = pytest.mark.parametrize("kind", SHARD_KINDS, ids=lambda kind: kind.name)


def test_every_kind_has_a_room_and_there_are_no_others() -> None:
    assert set(SHARD_ROOMS) == set(SHARD_KINDS)


def test_names_and_topics_are_given_once() -> None:
    given = Counter(name for kind in SHARD_KINDS for name in (kind.name, kind.topic))

    assert set(given.values()) == {1}


@kinds
def test_the_files_of_a_room_are_called_after_their_roles(kind: ShardKind) -> None:
    room, name = SHARD_ROOMS[kind].machine.__module__.rsplit(".", maxsplit=1)

    assert name == "state_machine"
    assert [role for role in ROLES if not (ROOT / room.replace(".", "/") / f"{role}.py").exists()] == []


@kinds
def test_operators_can_name_the_shards_of_a_kind(kind: ShardKind) -> None:
    shard = kind.shard(0)

    assert parse_shard(short_name(shard)) == parse_shard(str(shard)) == shard
    assert f"{kind.name}-" in SHARD_NAMES


@kinds
def test_the_setting_that_counts_exists_and_is_read_before_the_placement(kind: ShardKind) -> None:
    fields = list(BrokerConfig.model_fields)

    assert kind.count_setting is None or kind.count_setting in fields[: fields.index("diskless_coordinator_placement")]


@kinds
def test_the_records_of_a_kind_have_a_meaning_or_a_key(kind: ShardKind) -> None:
    assert (kind in MEANINGS) != (kind.keyed_records is not None)


def test_a_record_stands_under_a_number_of_its_own() -> None:
    numbers = Counter(record.json["apiKey"] for part in (EVERY_SHARD, *MEANINGS.values()) for record in part)

    assert [number for number, times in numbers.items() if times > 1] == []


@kinds
def test_a_kind_is_in_the_table_of_kinds(kind: ShardKind) -> None:
    rows = re.findall(r"^\| \*(\w+)\* \| `(\w+)` \| .+ \| (.+) \|$", read(Path("docs/coordinator.md")), re.M)
    count = "one" if kind.count_setting is None else f"`{property_name(kind.count_setting)}`"

    assert (kind.name, kind.topic, count) in rows
    assert len(rows) == len(SHARD_KINDS)
