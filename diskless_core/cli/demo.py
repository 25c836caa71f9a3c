"""`diskless demo`: a broker, a producer, a consumer, a kill -9, and the proof that nothing was lost."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from diskless_core.cli.broker_process import BrokerProcessError
from diskless_core.cli.common import fail
from diskless_core.clock import SystemClock

RECORDS = 100_000

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    records: Annotated[int, typer.Option("--records", min=1, help="How many records to write and read.")] = RECORDS,
) -> None:
    """Start a broker in a temporary folder, write, read, kill it, and read everything again. Takes ten seconds."""
    from confluent_kafka import KafkaException

    from diskless_core.cli import demo_story, demo_traffic

    try:
        problems = demo_story.tell(Console(), SystemClock(), records)
    except (BrokerProcessError, demo_traffic.TrafficError, KafkaException) as error:
        fail(f"the demo failed: {error}")
    if problems:
        fail("the demo found that not everything is as it should be:", *problems)
