"""What the processes below this one have in memory while something runs."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from types import TracebackType

import psutil

from tests.benchmarks.machine import MIB

_POLL_S = 0.1


class ProcessMemory:
    """Peak resident memory below a process, in MiB: the JVM's, and that of each Python process together."""

    def __init__(self, pid: int) -> None:
        self.jvm_mib = 0.0
        self.python_mib = 0.0
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> ProcessMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_S):
            now: dict[bool, float] = defaultdict(float)
            with suppress(psutil.NoSuchProcess):
                for process in [self._root, *self._root.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess):
                        now["java" in process.name()] += process.memory_info().rss / MIB
            self.jvm_mib, self.python_mib = max(self.jvm_mib, now[True]), max(self.python_mib, now[False])
