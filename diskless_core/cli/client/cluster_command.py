"""`diskless cluster`: its commands."""

from __future__ import annotations

import typer

from diskless_core.cli.client.cluster_status import status
from diskless_core.cli.client.cluster_unregister import unregister

app = typer.Typer(help="Look at the brokers of a cluster, and forget them.", no_args_is_help=True, add_completion=False)


@app.callback()
def cluster() -> None:
    """Look at the brokers of a cluster, and forget them."""


app.command()(status)
app.command()(unregister)
