"""What the checks of a produced batch cost, without the rest of the broker.

`python -m tests.benchmarks.record_checks` prints the CPU time of each check, the best of several turns: of the
beginning of a batch, and of all its records with the walk from source and compiled.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

from diskless_core.config.types import RecordValidation
from diskless_core.produce import record_checks
from diskless_core.produce.record_checks import RecordChecks, check_records
from diskless_core.protocol.compression import CODECS
from diskless_core.protocol.record_batch import BatchHeader, RecordData, build, read_header
from tests.support.record_walks import WAYS, record_walk

BATCHES = ((100, 1), (100, 1_000), (1_024, 900))
"""Bytes of a record, and records of a batch."""

TURNS = 7
TURN_S = 0.02
GIB = 1 << 30


def batch_of_words(record_bytes: int, records: int, codec: int) -> memoryview:
    """A batch that codecs shrink to about a third."""
    chance = random.Random(1)
    words = [bytes(chance.choices(b"abcdefghij", k=chance.randint(2, 8))) for _ in range(300)]
    values = (b" ".join(chance.choices(words, k=record_bytes // 2))[:record_bytes] for _ in range(records))
    return memoryview(build([RecordData(None, value) for value in values], timestamp_ms=0, compression=codec))


def cpu_s(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    best = float("inf")
    for _ in range(TURNS):
        calls, began = 0, time.process_time()
        while time.process_time() - began < TURN_S:
            work()
            calls += 1
        best = min(best, (time.process_time() - began) / calls)
    return best


def beginning(checks: RecordChecks, batch: memoryview, header: BatchHeader) -> None:
    checks.begin_request()
    checks.at_once(batch, header, whole=False)


def main() -> None:
    print("| Batch | codec | beginning | from source | compiled | compiled, for a GiB of values |")
    print("|---|---|---|---|---|---|")
    for record_bytes, records in BATCHES:
        for name, codec in CODECS.items():
            batch = batch_of_words(record_bytes, records, codec)
            header = read_header(batch)
            costs = [cpu_s(partial(beginning, RecordChecks(RecordValidation.FIRST), batch, header))]
            for way in WAYS:
                with patch.object(record_checks, "record_walk", record_walk(way)):
                    costs.append(cpu_s(partial(check_records, batch, header, whole=True)))
            of_a_gib = costs[-1] * GIB / (record_bytes * records)
            shown = " | ".join(f"{cost * 1e6:.1f} µs" for cost in costs)
            print(f"| {records:,} of {record_bytes:,} bytes | {name} | {shown} | {of_a_gib:.2f} s |")


if __name__ == "__main__":
    main()
