"""Which brokers may lead which coordinator, as an operator writes it (KIP-1164, "Leadership and deployment").

In Kafka this is the placement of the partitions of `__diskless_metadata`. Everything here is the same on every broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskless_core.plugin.config import property_name, split_list
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import DISKLESS, SHARD_KINDS, kind_of, parse_shard, short_name

ALL_OTHERS = "*"

OTHER_NAMES = " and ".join(
    f"{kind.name}-{'N' if kind.count_setting else 0}" for kind in SHARD_KINDS if kind is not DISKLESS
)
"""What an operator calls coordinators that are no Diskless ones."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The brokers that may lead one coordinator, or, where `shard` is None, all that no other entry names."""

    shard: ShardId | None
    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"{_name(self.shard)}:{'|'.join(map(str, self.brokers))}"


def parse_placement(value: object) -> object:
    """Read `<coordinator>:<broker>|<broker>`, separated by commas; anything but text is left for pydantic to judge.

    A coordinator is the index of a Diskless one, or what `shards.parse_shard` reads, or `*`.

    Raises:
        ValueError: an entry is malformed, or two are for the same coordinator.
    """
    if not isinstance(value, str):
        return value
    placements = tuple(map(_parse_entry, split_list(value)))
    named = [placement.shard for placement in placements]
    for shard in named:
        if named.count(shard) > 1:
            raise ValueError(f"{_name(shard)} is placed twice")
    return placements


def check_shards(placements: Sequence[Placement], settings: Mapping[str, Any]) -> None:
    """Refuse to place what there is not.

    Args:
        settings: those of a broker, by field; the number of a kind of shard may be missing or None, and anything then
            goes.

    Raises:
        ValueError: a coordinator does not exist.
    """
    for placement in placements:
        shard = placement.shard
        if shard is None:
            continue
        setting = kind_of(shard).count_setting
        count = 1 if setting is None else settings.get(setting)
        if count is not None and shard.index >= count:
            reason = "there is only one of its kind" if setting is None else f"{property_name(setting)} is {count}"
            raise ValueError(f"there is no coordinator {_name(shard)}: {reason}")


def may_lead(placements: Sequence[Placement], shard: ShardId, node_id: int) -> bool:
    """Whether a broker is a candidate for leader of a coordinator. Where nothing is said of it, every broker is."""
    brokers = {placement.shard: placement.brokers for placement in placements}
    return node_id in brokers.get(shard, brokers.get(None, (node_id,)))


def _parse_entry(text: str) -> Placement:
    name, colon, brokers = text.partition(":")
    ids = brokers.split("|")
    if not colon or not all(broker.isascii() and broker.isdigit() for broker in ids):
        raise ValueError(f"{text!r} is not of the form <coordinator>:<broker id>|<broker id>")
    if name == ALL_OTHERS:
        shard = None
    elif name.isascii() and name.isdigit():
        shard = DISKLESS.shard(int(name))
    else:
        shard = parse_shard(name)
    return Placement(shard, tuple(map(int, ids)))


def _name(shard: ShardId | None) -> str:
    if shard is None:
        return ALL_OTHERS
    return str(shard.index) if shard.topic == DISKLESS.topic else short_name(shard)
