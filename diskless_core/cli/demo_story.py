"""The demo's acts, as its audience sees them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from diskless_core.cli import demo_traffic
from diskless_core.cli.broker_process import BrokerProcess
from diskless_core.cli.demo_traffic import PARTITIONS, TOPIC, Tally
from diskless_core.clock import Clock
from diskless_core.wal.format import IndexEntry, read_index

_FIRST_GROUP = "demo-first"
_SECOND_GROUP = "demo-second"
_SHOWN_OBJECTS = 10
_SHOWN_CHARACTERS = 22


def tell(console: Console, clock: Clock, records: int) -> list[str]:
    """Run the whole demo, and return what was not as it should be; empty when all was.

    Raises:
        BrokerProcessError: the broker did not start.
        TrafficError: a client could not write or read everything.
    """
    with (
        tempfile.TemporaryDirectory(prefix="diskless-demo-") as folder,
        BrokerProcess(Path(folder), clock) as broker,
    ):
        _start(console, broker)
        demo_traffic.create_topic(broker.bootstrap)
        console.print(f"created the topic [bold]{TOPIC}[/bold] with {PARTITIONS} partitions")

        with _progress(console, "producing, idempotent, zstd", records) as advance:
            demo_traffic.produce(broker.bootstrap, records, clock, advance)
        first = _read(console, clock, broker, _FIRST_GROUP, records)

        pid = broker.pid
        broker.kill()
        console.print(f"[red]kill -9 {pid}[/red]: the broker is gone, without a farewell")
        _start(console, broker)
        second = _read(console, clock, broker, _SECOND_GROUP, records)
        committed = demo_traffic.committed_offsets(broker.bootstrap, _FIRST_GROUP)

        console.print(_object_table(broker.wal_objects))
        return _judge(console, records, first, second, committed)


def _start(console: Console, broker: BrokerProcess) -> None:
    seconds = broker.start()
    console.print(f"broker [bold]{broker.pid}[/bold] listens on {broker.bootstrap} after {seconds:.1f} s")


def _read(console: Console, clock: Clock, broker: BrokerProcess, group: str, records: int) -> Tally:
    with _progress(console, f"consuming, group {group}", records) as advance:
        return demo_traffic.consume(broker.bootstrap, group, clock, advance)


@contextmanager
def _progress(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.update(task, completed=count)


def _object_table(folder: Path) -> Table:
    objects = [(path, read_index(path.read_bytes())) for path in _object_files(folder)]
    table = Table(title="WAL objects: many partitions share one")
    table.add_column("object")
    for name in ("bytes", "partitions", "batches", "records"):
        table.add_column(name, justify="right")
    for path, index in objects[:_SHOWN_OBJECTS]:
        table.add_row(path.name[:_SHOWN_CHARACTERS], *_figures([(path, index)]))
    if len(objects) > _SHOWN_OBJECTS:
        table.add_row(f"and {len(objects) - _SHOWN_OBJECTS} more", *_figures(objects[_SHOWN_OBJECTS:]))
    table.add_section()
    table.add_row(f"all {len(objects)}", *_figures(objects), style="bold")
    return table


def _object_files(folder: Path) -> list[Path]:
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.name)


def _figures(objects: Sequence[tuple[Path, Sequence[IndexEntry]]]) -> list[str]:
    entries = [entry for _, index in objects for entry in index]
    return [
        f"{sum(path.stat().st_size for path, _ in objects):,}",
        f"{len({(entry.topic_id, entry.partition) for entry in entries}):,}",
        f"{sum(entry.batch_count for entry in entries):,}",
        f"{sum(entry.record_count for entry in entries):,}",
    ]


def _judge(console: Console, records: int, first: Tally, second: Tally, committed: int) -> list[str]:
    problems = [f"before the kill: {problem}" for problem in first.problems(records)]
    problems += [f"after the kill: {problem}" for problem in second.problems(records)]
    if committed != records:
        problems.append(f"the group's offsets stand at {committed:,} after the kill, {records:,} were committed")
    if not problems:
        console.print("[green]proved:[/green]")
        for fact in (
            f"{records:,} records acknowledged, and {first.records:,} read",
            f"{second.records:,} read again after kill -9: none lost, none twice",
            f"the order of all {len(second.next_of_key):,} keys kept, both times",
            f"the offsets of group {_FIRST_GROUP} still there",
        ):
            console.print(f"  {fact}", highlight=False)
    return problems
