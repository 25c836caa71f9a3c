"""`diskless cluster`: its commands."""

from __future__ import annotations

import typer

from diskless_core.cli.client.cluster_cost import cost
from diskless_core.cli.client.cluster_status import status
from diskless_core.cli.client.cluster_unregister import unregister
from diskless_core.cli.cluster_backup import backup, restore
from diskless_core.cli.cluster_demo.command import demo

_HELP = "Look at a cluster and its costs, back it up and restore it, forget brokers, or see a cluster at work."

app = typer.Typer(help=_HELP, no_args_is_help=True, add_completion=False)


@app.callback()
def cluster() -> None:
    """Look at a cluster and its costs, back it up and restore it, forget brokers, or see a cluster at work."""


app.command()(status)
app.command()(unregister)
app.command()(cost)
app.command()(backup)
app.command()(restore)
app.command()(demo)
