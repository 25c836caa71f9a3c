"""`diskless orphans`: has a running broker look for objects that nobody committed."""

from __future__ import annotations

from typing import Annotated

import typer

from diskless_core.cli import admin_client, common
from diskless_core.cli.cluster_admin import ClusterAdmin
from diskless_core.cli.text import iso_time

SCAN_TIMEOUT_S = 24 * 3600.0
"""A scan lists the whole bucket before it answers. A broker that ends meanwhile is noticed at once."""

app = typer.Typer(help="Find objects that nobody committed.", no_args_is_help=True, add_completion=False)


@app.callback()
def orphans() -> None:
    """Find objects that nobody committed."""


@app.command()
def scan(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing, refuse nothing.")] = False,
    url: admin_client.UrlsOption = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Scan now, as the controller does by itself every diskless.coordinator.orphan.scan.interval.ms.

    Any broker can be asked: it tells who the controller is. When that dies meanwhile, the next one scans anew.
    """
    try:
        cluster = ClusterAdmin(admin_client.addresses(url, config, override))
        path = f"/orphans/scan{'?dry_run=true' if dry_run else ''}"
        report = cluster.ask_leader(lambda view: view.controller, "POST", path, timeout_s=SCAN_TIMEOUT_S)
    except admin_client.AdminClientError as error:
        common.fail(str(error))
    if as_json:
        common.echo_json(report)
        return
    for key in report["orphans"]:
        typer.echo(key)
    typer.echo(
        f"of {report['listed']} objects {report['candidates']} are from before {iso_time(report['threshold_ms'])}; "
        f"of these {len(report['orphans'])} are orphans, and {report['deleted']} were deleted"
    )
