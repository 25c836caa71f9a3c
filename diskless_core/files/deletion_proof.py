"""Proves, right before objects are deleted, that no other coordinator has live batches of them or will ever commit any.

A hand-over says that the owners before are through with an object, and it may be forged, or say it of an object that
was never theirs. So whoever deletes asks the other coordinators themselves, strictly: the owners that the object was
committed with, and all of the cluster for an object that was never committed here, of whose owners nothing but the
hand-over tells. One that does not know the object has forgotten it, or has not had its commit yet: its horizon is
raised over the object first, so that no commit comes later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.file_stages import EndingFile
from diskless_core.files.deletion_plan import covered_in_ms, horizon_over
from diskless_core.passed_time import Passed

REPORTED_FILES = 1_000
"""Objects of which it is remembered that the log was told of them, at most."""

_log = structlog.get_logger(__name__)


class Doubt(NamedTuple):
    """What one coordinator leaves unproven.

    Attributes:
        live: keys of the objects that it has live batches of.
        open: keys of those that it may yet commit.
        error: why it has no answer; then all are open.
    """

    live: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()
    error: CoordinatorError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What may be deleted.

    Attributes:
        unanswered: coordinators that did not answer, so that some objects have to wait.
    """

    files: Sequence[EndingFile]
    unanswered: Sequence[int] = ()


class DeletionProof:
    """Asks for the shard `index`; `coordinators` are all of the cluster by index."""

    def __init__(self, index: int, coordinators: Mapping[int, DisklessCoordinator]) -> None:
        self._index = index
        self._coordinators = coordinators
        self._reported: dict[str, None] = {}
        self._has_named_strangers = False

    async def of(self, files: Sequence[EndingFile], passed: Passed, silent: Collection[int] = ()) -> Proven:
        """Those of the objects, all of which this shard is the last owner of, that are certainly dead everywhere.

        Args:
            silent: coordinators that have just not answered: they are not asked, and their objects have to wait.
        """
        asked = {file.object_key: whom_to_ask(file, self._index, self._coordinators) for file in files}
        self._report_strangers(files, asked)
        by_owner: dict[int, list[str]] = {}
        waiting = {key for key, owners in asked.items() if owners is not None and not set(owners).isdisjoint(silent)}
        for object_key, owners in asked.items():
            for owner in (owners or ()) if object_key not in waiting else ():
                by_owner.setdefault(owner, []).append(object_key)
        doubts = dict(
            zip(by_owner, await asyncio.gather(*(self._ask(*one, passed) for one in by_owner.items())), strict=True)
        )
        for owner, doubt in doubts.items():
            self._report(owner, doubt)
        unproven = waiting.union(*(doubt.live | doubt.open for doubt in doubts.values()))
        return Proven(
            files=[one for one in files if asked[one.object_key] is not None and one.object_key not in unproven],
            unanswered=[owner for owner, doubt in doubts.items() if doubt.error is not None],
        )

    async def _ask(self, owner: int, object_keys: Sequence[str], passed: Passed) -> Doubt:
        coordinator = self._coordinators[owner]
        try:
            known = await coordinator.describe_files(object_keys)
            live = {key for key, is_live in known.items() if is_live}
            unknown = [key for key in object_keys if key not in known]
            old = [key for key in unknown if covered_in_ms(key, passed) <= 0]
            if old:
                # Its commit may be under way: it counts, or comes too late, by the time that the horizon stands.
                await coordinator.raise_horizon(horizon_over(old))
                live |= {key for key, is_live in (await coordinator.describe_files(old)).items() if is_live}
        except CoordinatorError as error:
            return Doubt(open=frozenset(object_keys), error=error)
        return Doubt(live=frozenset(live), open=frozenset(unknown).difference(old))

    def _report_strangers(self, files: Sequence[EndingFile], asked: Mapping[str, Sequence[int] | None]) -> None:
        """Tell the log once of owners that this broker does not know: only an operator can help."""
        kept = [file for file in files if asked[file.object_key] is None]
        if not kept or self._has_named_strangers:
            return
        self._has_named_strangers = True
        _log.error(
            "objects are kept because this broker does not know all of their owners: set "
            "diskless.metadata.topic.num.partitions to the same number on all brokers, which is at least the largest "
            "owner plus one, and restart this one",
            shard=self._index,
            owners=sorted({owner for file in kept for owner in file.dead.owner_ids}.difference(self._coordinators)),
            objects=len(kept),
            example=kept[0].object_key,
        )

    def _report(self, owner: int, doubt: Doubt) -> None:
        if doubt.error is not None:
            _log.warning(
                "a coordinator does not say whether objects are dead, which are kept until it does",
                shard=self._index,
                owner=owner,
                error=str(doubt.error),
            )
        news = [key for key in doubt.live if key not in self._reported]
        if not news:
            return
        for key in news:
            self._reported[key] = None
        while len(self._reported) > REPORTED_FILES:
            del self._reported[next(iter(self._reported))]
        _log.error(
            "objects were handed over that another coordinator still has live batches of: they are kept, and deleted "
            "once they are dead there too",
            shard=self._index,
            owner=owner,
            objects=len(news),
            example=news[0],
        )


def whom_to_ask(file: EndingFile, index: int, coordinators: Mapping[int, object]) -> Sequence[int] | None:
    """The coordinators that have to say that an object is dead before the shard `index` deletes it; None forbids it."""
    if file.received is None:
        return []  # it was committed here and with no other
    if not set(file.dead.owner_ids) <= coordinators.keys():
        return None
    owners = coordinators if file.is_tombstone else file.dead.owner_ids
    return [owner for owner in owners if owner != index]
