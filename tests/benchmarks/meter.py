"""What a running broker, in whatever language, has used."""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil

from tests.benchmarks.machine import MIB


class Meter:
    """What a broker process has used."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._cpu_clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) has it: in nanoseconds, where times come in ticks
        self._status = Path(f"/proc/{pid}/status")

    def cpu_s(self) -> float:
        return time.clock_gettime(self._cpu_clock)

    def rss_mib(self) -> float:
        return float(self._process.memory_info().rss) / MIB

    def peak_rss_mib(self) -> float:
        found = re.search(r"VmHWM:\s+(\d+) kB", self._status.read_text())
        if found is None:
            raise RuntimeError("the kernel does not tell the peak of resident memory")
        return int(found[1]) / 1024
