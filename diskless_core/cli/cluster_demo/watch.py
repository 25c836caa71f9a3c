"""What the brokers themselves tell while the demo runs: who leads, who is live, what they ask of the bucket."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from diskless_core.cli.admin_client import AdminClientError
from diskless_core.cli.cluster_admin import ClusterAdmin
from diskless_core.cli.cluster_demo.brokers import Brokers
from diskless_core.cli.cluster_demo.story import Stage
from diskless_core.cluster.view import ClusterView

LOOK_S = 0.5
_ASK_S = 2.0
UPLOADS = "diskless_wal_objects_uploaded"
READS = "diskless_store_reads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is known at one time.

    Attributes:
        leaders: by the short name of each coordinator the broker that leads it; None while nobody is known to.
        live: the brokers that are registered and not fenced.
        registered: all that are registered.
        uploads: objects with records that each broker has written to the bucket since its process began.
        reads: what each has read of such objects.
    """

    controller: int | None = None
    leaders: Mapping[str, int | None] = field(default_factory=dict)
    live: frozenset[int] = frozenset()
    registered: frozenset[int] = frozenset()
    uploads: Mapping[int, int] = field(default_factory=dict)
    reads: Mapping[int, int] = field(default_factory=dict)

    def leads(self) -> Counter[int]:
        """How many coordinators each broker leads."""
        return Counter(leader for leader in self.leaders.values() if leader is not None)


class Watch:
    """Looks again and again, in a thread of its own, which waits for nobody else."""

    def __init__(self, brokers: Brokers, counts: Callable[[], Mapping[str, int]]) -> None:
        self._brokers = brokers
        self._counts = counts
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.sight = Sight()
        self.requests: Mapping[str, int] = {}

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join(_ASK_S)

    def stage(self) -> Stage:
        """The brokers, for the choice of a victim."""
        sight = self.sight
        racks = {node_id: self._brokers.rack(node_id) for node_id in self._brokers.running()}
        return Stage(racks=racks, leads=sight.leads(), controller=sight.controller)

    def _run(self) -> None:
        while not self._ends.wait(LOOK_S):
            with suppress(AdminClientError, OSError, HTTPException):  # a broker may be gone by now
                self.sight = self._look()
            with suppress(OSError, HTTPException):
                self.requests = self._counts()

    def _look(self) -> Sight:
        running = self._brokers.running()
        told = ClusterAdmin([self._brokers.admin(node_id) for node_id in running]).view()
        uploads, reads = dict(self.sight.uploads), dict(self.sight.reads)
        for node_id in running:
            with suppress(OSError, HTTPException, ValueError):
                figures = _figures(self._brokers.admin(node_id))
                uploads[node_id], reads[node_id] = figures[UPLOADS], figures[READS]
        return sight_of(told, uploads, reads)


def sight_of(told: ClusterView, uploads: Mapping[int, int], reads: Mapping[int, int]) -> Sight:
    """What a broker's answer and the figures of all come to."""
    return Sight(
        controller=told.controller,
        leaders={one.shard: one.leader for one in told.shards},
        live=frozenset(one.node_id for one in told.brokers if not one.is_fenced),
        registered=frozenset(one.node_id for one in told.brokers),
        uploads=uploads,
        reads=reads,
    )


def _figures(admin: str) -> Counter[str]:
    with urlopen(f"{admin}/metrics", timeout=_ASK_S) as answer:  # noqa: S310 - our own broker
        text = answer.read().decode()
    figures = Counter[str]()
    for family in text_string_to_metric_families(text):
        if family.name in (UPLOADS, READS):
            figures[family.name] = sum(int(sample.value) for sample in family.samples if sample.name.endswith("_total"))
    return figures
