"""What the brokers of a run count, over all their lives."""

from __future__ import annotations

import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence

from prometheus_client.parser import text_string_to_metric_families

from tests.chaos.cluster import Member

_LOOK_S = 2.0
_PATIENCE_S = 5.0

FORWARDED = "forwarded requests"
_COUNTED = {"diskless_forwarded_requests_total": None, "diskless_peer_reads_total": "outcome"}


def peer_reads(outcome: str) -> str:
    """The name under which reads of other brokers' caches count."""
    return f"peer reads {outcome}"


class Counters:
    """Reads the metrics of all brokers now and then. What a process counted after the last time before its end is lost.

    Args:
        members: the brokers as they are now.
    """

    def __init__(self, members: Callable[[], Sequence[Member]]) -> None:
        self._members = members
        self._of_lives: dict[int, Counter[str]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counters", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def total(self) -> Counter[str]:
        """All that was counted so far."""
        return sum(list(self._of_lives.values()), Counter())

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        for member in self._members():
            if not member.runs:
                continue
            try:
                pid = member.process.pid
                url = f"http://127.0.0.1:{member.admin_port}/metrics"
                with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
                    self._of_lives[pid] = counted(answer.read().decode())
            except (OSError, ValueError, AssertionError):
                continue  # it has ended, or is busy


def counted(metrics: str) -> Counter[str]:
    """What is counted in metrics as Prometheus reads them."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name in _COUNTED:
                label = _COUNTED[sample.name]
                found[FORWARDED if label is None else peer_reads(sample.labels[label])] += int(sample.value)
    return found
