"""`diskless cluster`: its commands."""

from __future__ import annotations

import typer

from diskless_core.cli.client.cluster_status import status
from diskless_core.cli.client.cluster_unregister import unregister
from diskless_core.cli.cluster_demo.command import demo

_HELP = "Look at the brokers of a cluster, forget them, or see a cluster at work."

app = typer.Typer(help=_HELP, no_args_is_help=True, add_completion=False)


@app.callback()
def cluster() -> None:
    """Look at the brokers of a cluster, forget them, or see a cluster at work."""


app.command()(status)
app.command()(unregister)
app.command()(demo)
