"""`make chaos SEED=7 MINUTES=15 LOG=bucket`: a cluster of real brokers is broken for so long and must keep its word."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.cluster import can_fill_disks, can_set_clocks
from tests.chaos.plan import Fault
from tests.chaos.run import Outcome, run
from tests.support.maven import fetch_jars

LOGS: Mapping[str, Mapping[str, str]] = {"bucket": {"coordinator_log": "bucket"}}
"""The coordinator logs that a cluster can have here, and what chooses them."""

_ONLY_WITH_KAFKA = (Fault.LOG_BROKER_KILLED, Fault.LOG_BROKERS_KILLED)


def main() -> int:
    arguments = _arguments()
    faults = [fault for fault in Fault if _is_possible(fault)]
    left_out = [fault.text for fault in Fault if fault not in faults]
    if left_out:
        print(f"left out here: {'; '.join(left_out)}")
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder = arguments.keep or Path(name)
        outcome = run(
            folder,
            seed=arguments.seed,
            seconds=arguments.minutes * 60,
            faults=faults,
            log=LOGS[arguments.log],
            jars=fetch_jars("kafka"),
        )
    print(_told(outcome, arguments.log))
    if arguments.report is not None and not outcome.violations:
        with arguments.report.open("a") as report:
            report.write(_row(outcome, arguments.log))
    return 1 if outcome.violations else 0


def _is_possible(fault: Fault) -> bool:
    match fault:
        case Fault.CLOCK_OFF:
            return can_set_clocks()
        case Fault.DISK_FULL:
            return can_fill_disks()
    return fault not in _ONLY_WITH_KAFKA


def _told(outcome: Outcome, log: str) -> str:
    broken = "".join(f"\n  BROKEN: {one}" for one in outcome.violations) or "\n  every promise was kept"
    return (
        f"seed {outcome.seed}, {outcome.seconds / 60:g} minutes, log {log}: {outcome.faults} faults, "
        f"{outcome.acknowledged} records acknowledged, {outcome.polled} polled, "
        f"longest time without any acknowledgement {outcome.longest_gap_s:.1f} s{broken}"
    )


def _row(outcome: Outcome, log: str) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return (
        f"| {commit.stdout.strip()} | {log} | {outcome.seed} | {outcome.seconds / 60:g} | {outcome.faults} | "
        f"{outcome.acknowledged} | {outcome.polled} | {outcome.longest_gap_s:.1f} |\n"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--log", choices=sorted(LOGS), default="bucket")
    parser.add_argument("--keep", type=Path, help="a new folder for the brokers' logs, which stays")
    parser.add_argument("--report", type=Path, help="append a line of a table to this file if every promise was kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
