"""How long a broker takes from nothing to the first acknowledged record, and what of that is importing modules."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from diskless_core.cli.broker_process import BrokerProcess
from diskless_core.clock import SystemClock
from tests.benchmarks import load

ABOUT = (
    "A new broker on an empty folder, and a producer that writes one record to a topic that the broker then makes; "
    "medians of several starts. Imports are those of the command in a process of their own; shares are told by "
    "`python -X importtime`, without what a package imports in its turn."
)

STARTS = 9
SHOWN_PACKAGES = 8
_NOTHING = "pass"
_IMPORTS = "import gc; gc.disable(); import diskless_core.cli.serve"
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)")


def measure(add: Callable[[str, str], None]) -> None:
    """Add the figures of this section."""
    ready, first = zip(*(_start() for _ in range(STARTS)), strict=True)
    add("from nothing to the first record", f"{statistics.median(first):.2f} s")
    add("of that, until clients can connect", f"{statistics.median(ready):.2f} s")
    bare, importing = (statistics.median(_run(code) for _ in range(STARTS)) for code in (_NOTHING, _IMPORTS))
    add("of that, Python itself", f"{bare:.2f} s")
    add("of that, imports of `diskless serve`", f"{importing - bare:.2f} s")
    times = _import_times()
    for package, microseconds in times.most_common(SHOWN_PACKAGES):
        add(f"share of the imports, {package}", f"{microseconds / times.total():.0%}")


def _start() -> tuple[float, float]:
    """Seconds until clients can connect, and until a record is acknowledged."""
    clock = SystemClock()
    with (
        tempfile.TemporaryDirectory(prefix="diskless-bench-") as folder,
        BrokerProcess(Path(folder), clock) as broker,
    ):
        began = clock.monotonic()
        broker.start()
        ready = clock.monotonic() - began
        load.produce_one(broker.bootstrap)
        first = clock.monotonic() - began
        broker.stop()
    return ready, first


def _run(code: str) -> float:
    """Seconds of a Python process."""
    clock = SystemClock()
    began = clock.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    return clock.monotonic() - began


def _import_times() -> Counter[str]:
    """Microseconds by package, those of the standard library as one."""
    command = [sys.executable, "-X", "importtime", "-c", _IMPORTS]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    times: Counter[str] = Counter()
    for line in run.stderr.splitlines():
        if found := _LINE.match(line):
            package = found[2].partition(".")[0]
            times["the standard library" if package in sys.stdlib_module_names else package] += int(found[1])
    return times
