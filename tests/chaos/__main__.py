"""`make chaos SEED=7 MINUTES=15 LOG=bucket`: a cluster of real brokers is broken for so long and must keep its word."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.chaos.cluster import can_fill_disks
from tests.chaos.logs import BucketLog, KafkaLog, Log
from tests.chaos.plan import Fault
from tests.chaos.report import REPORTS, add_row, told
from tests.chaos.run import run
from tests.chaos.stores import FolderStore, S3Store, Store
from tests.support.maven import fetch_jars

STORES: Mapping[str, Callable[[Path], Store]] = {"s3": S3Store, "folder": FolderStore}
LOGS = ("bucket", "kafka")
REPORTED_MINUTES = 15.0
"""A run of at least so long is written down."""

_BUCKET_FAULTS = frozenset(
    {
        Fault.BUCKET_AWAY,
        Fault.BUCKET_UNAVAILABLE,
        Fault.BUCKET_SLOW,
        Fault.BUCKET_RESETS,
        Fault.BUCKET_ANSWERS_LOST,
    }
)
_KAFKA_FAULTS = frozenset({Fault.LOG_BROKER_KILLED, Fault.LOG_BROKERS_KILLED, Fault.LOG_CUT, Fault.LOG_HANGS})


def main() -> int:
    arguments = _arguments()
    # so that no process of the cluster is left
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before its time"))
    jars = fetch_jars("kafka") if arguments.java or arguments.log == "kafka" else None
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder: Path = arguments.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        store = STORES[arguments.store](folder)
        log = _log(arguments, folder, jars)
        faults = [fault for fault in Fault if fits(fault, store, log)]
        left_out = [fault for fault in faults if not is_possible(fault)]
        if left_out:
            print(f"left out here: {'; '.join(fault.text for fault in left_out)}")
        outcome = run(
            folder,
            seed=arguments.seed,
            seconds=arguments.minutes * 60,
            faults=faults,
            left_out=left_out,
            store=store,
            log=log,
            jars=jars if arguments.java else None,
        )
    print(told(outcome, arguments.log))
    if arguments.report is not None or arguments.minutes >= REPORTED_MINUTES:
        add_row(arguments.report or REPORTS, outcome, arguments.log)
    return 1 if outcome.violations else 0


def fits(fault: Fault, store: Store, log: Log) -> bool:
    """Whether there is anything that a fault could hit, with such a store and such a log."""
    if fault in _BUCKET_FAULTS:
        return store.port is not None
    if fault in _KAFKA_FAULTS:
        return len(log.nodes) >= (3 if fault is Fault.LOG_BROKERS_KILLED else 1)
    return True


def is_possible(fault: Fault) -> bool:
    """Whether this machine, and who runs this, can do it."""
    return fault is not Fault.DISK_FULL or can_fill_disks()


def _log(arguments: argparse.Namespace, folder: Path, jars: Path | None) -> Log:
    if arguments.log == "bucket":
        return BucketLog()
    assert jars is not None, "an Apache Kafka needs its jars"
    return KafkaLog(jars, folder, arguments.kafka_nodes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--log", choices=LOGS, default="bucket", help="the coordinator log")
    parser.add_argument("--kafka-nodes", type=int, default=3, help="how many nodes the log's Kafka has")
    parser.add_argument("--store", choices=sorted(STORES), default="s3", help="where the objects are")
    parser.add_argument("--java", action=argparse.BooleanOptionalAction, default=True, help="a Java producer too")
    parser.add_argument("--keep", type=Path, help="a new folder for the brokers' logs, which stays")
    parser.add_argument("--report", type=Path, help=f"where to add a line; from {REPORTED_MINUTES:g} minutes on always")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
