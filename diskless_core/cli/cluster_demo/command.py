"""`diskless cluster demo`: the command."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from diskless_core.cli.common import fail
from diskless_core.cli.signals import stop_signals
from diskless_core.clock import SystemClock

_INTERRUPTED = 130


def demo(
    brokers: Annotated[int, typer.Option("--brokers", help="How many brokers to begin with.")] = 3,
    racks: Annotated[int, typer.Option("--racks", help="How many racks they stand in.")] = 3,
    s3: Annotated[bool, typer.Option("--s3", help="On an S3 server of its own instead of a folder.")] = False,
    pace: Annotated[
        float, typer.Option("--pace", metavar="SECONDS", min=0, help="How long all goes well between two faults.")
    ] = 3.0,
    rate: Annotated[
        float, typer.Option("--rate", metavar="RECORDS", min=1, max=100_000, help="Records a second to produce.")
    ] = 600.0,
    patience: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", min=1, help="How long anything may take.")
    ] = 60.0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder, with the brokers' data and logs.")] = False,
) -> None:
    """Start a cluster in a temporary folder, break it in every way that it must survive, and say what that proved.

    Producers and a consumer group work all the time, while the controller is killed, a broker stands still, one is
    added, one is removed and a whole rack is lost. That takes about a minute. The command ends with exit code 1 if
    anything that was acknowledged is lost, doubled, moved or out of order. It leaves no process and no file behind.
    """
    from confluent_kafka import KafkaException
    from rich.console import Console

    from diskless_core.cli.broker_process import BrokerProcessError
    from diskless_core.cli.client.cluster import ClusterError
    from diskless_core.cli.cluster_demo import bucket, show, story, traffic
    from diskless_core.cli.cluster_demo.screen import Screen

    wrong = story.problems(brokers, racks)
    if wrong:
        fail(*wrong)
    plan = show.Plan(brokers=brokers, racks=racks, pace_s=pace, rate=rate, patience_s=patience)
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(_folder(keep=keep))
            stack.enter_context(_interruptible())
            place = stack.enter_context(bucket.in_s3(folder / "s3.log")) if s3 else bucket.in_folder(folder / "bucket")
            screen = stack.enter_context(Screen(Console()))
            problems = show.Show(plan, folder, place, screen, SystemClock()).run()
    except (BrokerProcessError, bucket.BucketError, ClusterError, traffic.TrafficError, show.ShowError) as error:
        fail(f"the demo failed: {error}")
    except OSError as error:
        fail(f"the demo failed: {error}")
    except KafkaException as error:
        fail(f"the demo failed: a client was told: {error}")
    except KeyboardInterrupt:
        typer.echo("interrupted; all brokers are ended", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    if problems:
        fail("not everything is as it should be:", *problems)


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="diskless-cluster-demo-"))
    try:
        yield folder
    finally:
        if keep:
            typer.echo(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """The first signal ends the demo, whatever it is doing; the next ones do not disturb it while it tidies up."""
    numbers = stop_signals()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
