"""What a driver of Spark and the processes below it have in memory while something runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType

import psutil

from tests.benchmarks.machine import MIB

_POLL_S = 0.1
_KINDS = ("driver (Python)", "JVM", "workers (Python)")


class ProcessMemory:
    """Peaks of resident memory in MiB, by kind of process: the driver, Spark's JVM, Python's workers together."""

    def __init__(self, driver: int) -> None:
        self.peaks_mib = dict.fromkeys(_KINDS, 0.0)
        self._driver = psutil.Process(driver)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __str__(self) -> str:
        return ", ".join(f"{kind} {peak:,.0f} MiB" for kind, peak in self.peaks_mib.items())

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
            with suppress(psutil.NoSuchProcess):
                for kind, used in self._used_mib().items():
                    self.peaks_mib[kind] = max(self.peaks_mib[kind], used)

    def _used_mib(self) -> dict[str, float]:
        driver, jvm, workers = _KINDS
        used = {driver: self._driver.memory_info().rss / MIB, jvm: 0.0, workers: 0.0}
        for process in self._driver.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                used[jvm if process.name() == "java" else workers] += process.memory_info().rss / MIB
        return used
