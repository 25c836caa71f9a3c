"""How far the objects of a shard are on their way from the first to the last of their owners, and to the end. Pure.

(KIP-1164, "WAL file management".) It follows from the shard's rows alone, whoever leads it: an object belongs to the
first of its owners until that one, having no live batch of it any more, hands it over to the next; the last one
deletes it. What a stage asks for is done by `files.deletion`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.tables import (
    DEAD_FILES,
    GONE_FILES,
    RECEIVED_FILES,
    DeadFile,
    GoneFile,
    ReceivedFile,
)
from diskless_core.plugin.coordinator_store import Row, StoreView

_PAGE_ROWS = 500


class Stage(StrEnum):
    """Where in its life an object is, as one of its shards sees it."""

    LIVE = "live"
    WAITING = "waiting"
    """Dead here, while an owner before still has it."""
    TO_HAND_OVER = "to_hand_over"
    TO_DELETE = "to_delete"
    GONE = "gone"
    """Handed over or deleted, and still remembered for the sake of a CommitFile that is sent again."""


ENDING_STAGES = tuple(stage for stage in Stage if stage is not Stage.LIVE)


class EndingFile(NamedTuple):
    """An object without live batches in this shard, and what else the shard knows of its end."""

    object_key: str
    dead: DeadFile
    received: ReceivedFile | None = None
    gone: GoneFile | None = None

    @property
    def dead_at(self) -> int:
        """The latest death in this owner and those before, in milliseconds since the epoch."""
        return self.dead.dead_at if self.received is None else max(self.dead.dead_at, self.received.dead_at)

    @property
    def is_tombstone(self) -> bool:
        """Whether it never was committed here, or was forgotten, before it was handed over."""
        return self.received is not None and self.received.was_unknown

    def hand_over(self) -> HandOver:
        return HandOver(self.object_key, self.dead.owner_ids, self.dead.committed_at, self.dead_at)


def stage_of(shard_index: int, file: EndingFile) -> Stage:
    """What has to be done with the object next, as the shard `shard_index` sees it."""
    if file.gone is not None:
        return Stage.GONE
    if file.received is None and file.dead.owner_ids[:1] != (shard_index,):
        return Stage.WAITING
    return Stage.TO_DELETE if file.dead.owner_ids[-1] == shard_index else Stage.TO_HAND_OVER


def next_owner(shard_index: int, owner_ids: Sequence[int]) -> int:
    """Who has the object after this owner, which is not the last one."""
    return owner_ids[owner_ids.index(shard_index) + 1]


def ending_files(store: StoreView, after: str, limit: int) -> list[EndingFile]:
    """A page of the objects that are not live, in the order of their keys, from the first behind `after` on."""
    rows = store.scan(DEAD_FILES.name, (after + "\0",), limit=limit)
    return [_ending_file(store, row) for row in rows]


def count_ending(store: StoreView, shard_index: int) -> Mapping[Stage, int]:
    """How many objects are in each stage but `LIVE`. It reads all of them, a page at a time."""
    counts: Counter[Stage] = Counter(dict.fromkeys(ENDING_STAGES, 0))
    after = ""
    while page := ending_files(store, after, _PAGE_ROWS):
        counts.update(stage_of(shard_index, file) for file in page)
        after = page[-1].object_key
    return counts


def _ending_file(store: StoreView, row: Row) -> EndingFile:
    key, dead = DEAD_FILES.entity(row)
    received, gone = store.get(RECEIVED_FILES.name, key), store.get(GONE_FILES.name, key)
    return EndingFile(
        str(key[0]),
        dead,
        RECEIVED_FILES.decode(received) if received is not None else None,
        GONE_FILES.decode(gone) if gone is not None else None,
    )
