"""How many shards there are of a kind whose number is recorded: in the cluster's state, and when that moves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from diskless_core.cluster.tables import CLUSTER, coordinator_count_key, former_count_key
from diskless_core.coordinator.tables import Key
from diskless_core.plugin.coordinator_store import Row

ONE = "1"
"""Where no record says otherwise."""


class Change(NamedTuple):
    """What a move to another log does to the number of shards of a kind."""

    old: int
    new: int


class ChangeRefusedError(Exception):
    """An interrupted move has decided for another number."""


def recorded(rows: Mapping[Key, str], topic: str) -> int:
    """The number of shards of the kind with this topic, from the rows of `CLUSTER`."""
    return int(rows.get(coordinator_count_key(topic), ONE))


def change(rows: Mapping[Key, str], topic: str, wanted: int | None, *, is_decided: bool) -> Change:
    """What a move does, or the interrupted one did that it finishes.

    Args:
        wanted: the number that there are to be; None leaves it as it is.
        is_decided: whether these rows are those with which the cluster shard goes on after the move.

    Raises:
        ChangeRefusedError: it is decided otherwise.
    """
    present = recorded(rows, topic)
    if not is_decided:
        return Change(present, wanted or present)
    if wanted not in (None, present):
        raise ChangeRefusedError(
            f"an earlier run has decided for {present} partitions of {topic}, and cannot be finished with {wanted}: "
            f"run it with {present}"
        )
    return Change(int(rows.get(former_count_key(topic), ONE)), present)


def changed(rows: Mapping[Key, str], topic: str, by: Change) -> Sequence[Row]:
    """The rows of `CLUSTER` with which the cluster shard goes on."""
    counts = {coordinator_count_key(topic): str(by.new), former_count_key(topic): str(by.old)}
    return [CLUSTER.row(key, value) for key, value in sorted({**rows, **counts}.items())]
