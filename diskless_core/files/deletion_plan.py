"""What has to be done with a shard's dead objects now, and when to look again (KIP-1164, "WAL file management"). Pure.

Nothing here is remembered: each decision follows from the rows, so that another leader goes on where this one was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.file_stages import EndingFile, Stage, next_owner, stage_of
from diskless_core.passed_time import Passed
from diskless_core.wal.format import WalFormatError, created_ms_of, is_older

_NEVER = 2**63

ANSWERS_KEPT_MS = 600_000
"""A shard remembers what it answered to a CommitFile for at least so long, and since it was last elected: until then
the same one may be sent again, and must not be taken for a new one. Then the horizon stands in for the answer. So long
ago, by the leader's clock, is also the latest horizon that forgetting raises: what was created since, by its key, can
still be committed, whatever the clock says of the broker whose object is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What decisions depend on besides the rows.

    Attributes:
        led_for_ms: how long ago this node was elected.
        horizon_ms: the shard's horizon in milliseconds since the epoch, 0 before there was one.
    """

    shard_index: int
    passed: Passed
    delete_delay_ms: int
    led_for_ms: int
    horizon_ms: int


@dataclass(slots=True)
class Plan:
    """What is due now.

    Attributes:
        hand_over: what to give to which owner.
        remind: what to tell the first of its owners of, who may never have heard of it.
        delete: what to delete from the object store.
        forget: what nobody will ask for any more.
        due_in_ms: after how long the first of those is due for which it is too early; None when there is none.
        stages: how many objects are in which stage.
    """

    hand_over: list[tuple[int, HandOver]] = field(default_factory=list)
    remind: list[tuple[int, HandOver]] = field(default_factory=list)
    delete: list[EndingFile] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    due_in_ms: int | None = None
    stages: Counter[Stage] = field(default_factory=Counter)


def plan(files: Sequence[EndingFile], moment: Moment) -> Plan:
    """Sort objects by what has to be done with them."""
    made = Plan()
    for file in files:
        stage = stage_of(moment.shard_index, file)
        made.stages[stage] += 1
        due_in_ms = _due_in_ms(stage, file, moment)
        if due_in_ms is None:
            continue
        if due_in_ms <= 0:
            _add(made, stage, file, moment)
        elif made.due_in_ms is None or due_in_ms < made.due_in_ms:
            made.due_in_ms = due_in_ms
    return made


def can_be_forgotten(file: EndingFile, moment: Moment) -> bool:
    """Whether no CommitFile of this object can come any more, once the shard is through with it."""
    due_in_ms = _forgettable_in_ms(file, moment)
    return due_in_ms is not None and due_in_ms <= 0


def horizon_over(object_keys: Sequence[str]) -> int:
    """The horizon that keeps a CommitFile of any of these out, once the shard has forgotten that it was answered.

    However long its answer was under way, it must not be taken for a new one: what it speaks of is gone.
    """
    horizon_ms = 0
    for object_key in object_keys:
        with suppress(WalFormatError):
            horizon_ms = max(horizon_ms, created_ms_of(object_key) + 1)
    return horizon_ms


def covered_in_ms(object_key: str, passed: Passed) -> int:
    """After how long a horizon may be raised over an object; see `ANSWERS_KEPT_MS`. Never over a key without a time."""
    horizon_ms = horizon_over([object_key])
    return ANSWERS_KEPT_MS - passed.since(horizon_ms) if horizon_ms else _NEVER


def _add(made: Plan, stage: Stage, file: EndingFile, moment: Moment) -> None:
    match stage:
        case Stage.WAITING:
            made.remind.append((file.dead.owner_ids[0], file.hand_over()))
        case Stage.TO_HAND_OVER:
            made.hand_over.append((next_owner(moment.shard_index, file.dead.owner_ids), file.hand_over()))
        case Stage.TO_DELETE:
            made.delete.append(file)
        case Stage.GONE:
            made.forget.append(file.object_key)


def _due_in_ms(stage: Stage, file: EndingFile, moment: Moment) -> int | None:
    """After how long the object has to be touched next; None when that does not depend on time alone."""
    match stage:
        case Stage.WAITING:
            return _reminder_in_ms(file, moment)
        case Stage.TO_HAND_OVER:
            # Of an object this young the next owner's CommitFile may be on its way, and would be refused.
            return moment.delete_delay_ms - moment.passed.since(file.dead.committed_at)
        case Stage.TO_DELETE:
            delayed_in_ms = moment.delete_delay_ms - moment.passed.since(file.dead_at)
            # Of one that was never committed here, all other shards have to say so, those without it by their horizon.
            return (
                max(delayed_in_ms, covered_in_ms(file.object_key, moment.passed))
                if file.is_tombstone
                else delayed_in_ms
            )
        case Stage.GONE:
            return _forgettable_in_ms(file, moment)
        case Stage.LIVE:
            return None


def _reminder_in_ms(file: EndingFile, moment: Moment) -> int | None:
    """An object below the horizon can't be committed with its first owner any more: if that one does not have it by
    now, it never will, and would never hand it over."""
    return 0 if is_older(file.object_key, moment.horizon_ms) else None


def _forgettable_in_ms(file: EndingFile, moment: Moment) -> int | None:
    """A tombstone stays until the horizon stands in for it; an answer, until nobody asks for it again."""
    if file.is_tombstone and not is_older(file.object_key, moment.horizon_ms):
        return None
    since = moment.passed.since
    youngest_ms = min(since(file.dead.committed_at), moment.led_for_ms, since(horizon_over([file.object_key])))
    return ANSWERS_KEPT_MS - youngest_ms
