"""`diskless cluster`: its commands."""

from __future__ import annotations

import typer

from diskless_core.cli.client.cluster_cost import cost
from diskless_core.cli.client.cluster_status import status
from diskless_core.cli.client.cluster_unregister import unregister
from diskless_core.cli.cluster_backup import backup, restore

app = typer.Typer(
    help="Look at a cluster and its costs, back it up and restore it, forget brokers.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def cluster() -> None:
    """Look at a cluster and its costs, back it up and restore it, forget brokers."""


app.command()(status)
app.command()(unregister)
app.command()(cost)
app.command()(backup)
app.command()(restore)
