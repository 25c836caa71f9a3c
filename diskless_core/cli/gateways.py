"""`diskless gateways`: which brokers would be produce gateways, before a cluster is built or grown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from diskless_core.cli import common
from diskless_core.clock import SystemClock
from diskless_core.cluster.gateway_plan import Cluster, GatewaySummary, gateway_brokers, model_cluster, summarize
from diskless_core.config.load import LoadedConfig
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.gateway_placement import GatewayPlacement, Gateways, violation
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import GATEWAY_PLACEMENT

app = typer.Typer(help="Plan produce gateways.", no_args_is_help=True, add_completion=False)


@app.callback()
def gateways() -> None:
    """Plan produce gateways."""


@app.command()
def plan(
    brokers: Annotated[int, typer.Option("--brokers", min=1, help="Brokers, spread evenly over the racks.")],
    racks: Annotated[int, typer.Option("--racks", min=1, help="Racks, at most as many as brokers.")],
    coordinators: Annotated[
        int, typer.Option("--coordinators", min=1, help="Diskless coordinators, spread evenly over the brokers.")
    ],
    placement: Annotated[
        str | None, typer.Option("--placement", metavar="NAME", help="Plugin to ask, whatever is configured.")
    ] = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Show the gateways that a cluster of this size would have, and what they save.

    Asks the plugin of gateway_placement, by default the configured one.
    """
    if racks > brokers:
        raise typer.BadParameter(f"{racks} racks need at least as many brokers, not {brokers}")
    manager = common.discover_plugins()
    chosen = [f"{GATEWAY_PLACEMENT.name}={placement}"] if placement is not None else []
    loaded = common.load_or_exit(config, [*(override or []), *chosen], manager)
    cluster = model_cluster(brokers=brokers, racks=racks, coordinators=coordinators)
    name = loaded.plugins[GATEWAY_PLACEMENT.name].descriptor.name
    placed = _place(_create(manager, loaded), name, cluster)
    summary = summarize(cluster, placed)
    if as_json:
        common.echo_json(_plan_json(name, cluster, placed, summary))
        return
    typer.echo("\n".join(_plan_lines(name, cluster, placed, summary)))


def network_commits(
    *, brokers: int, racks: int, coordinators: int, config: Path | None, override: Sequence[str] | None
) -> tuple[int, int]:
    """Commits of a WAL object over the network at the worst, in a cluster of this size, with and without gateways."""
    manager = common.discover_plugins()
    loaded = common.load_or_exit(config, override, manager)
    cluster = model_cluster(brokers=brokers, racks=racks, coordinators=coordinators)
    name = loaded.plugins[GATEWAY_PLACEMENT.name].descriptor.name
    summary = summarize(cluster, _place(_create(manager, loaded), name, cluster))
    return summary.network_commits, summary.network_commits_without_gateways


def _create(manager: PluginManager, loaded: LoadedConfig) -> GatewayPlacement:
    def context(noun: str, name: str) -> PluginContext:
        folder = loaded.broker.data_dir.absolute()
        return PluginContext(
            node_id=loaded.broker.node_id, data_dir=folder / noun / name, log_dir=folder, clock=SystemClock()
        )

    try:
        return manager.create(GATEWAY_PLACEMENT, loaded.plugins, context)
    except PluginError as error:
        common.fail(str(error))


def _place(placement: GatewayPlacement, name: str, cluster: Cluster) -> Gateways:
    placed = placement.place(cluster.coordinators, cluster.brokers)
    problem = violation(cluster.coordinators, cluster.brokers, placed)
    if problem:
        common.fail(f"plugin {GATEWAY_PLACEMENT.name}.{name} breaks its contract: {problem}")
    return placed


def _plan_json(name: str, cluster: Cluster, placed: Gateways, summary: GatewaySummary) -> dict[str, Any]:
    return {
        "placement": name,
        **asdict(summary),
        "plan": [
            {
                "coordinator": coordinator.shard,
                "leader": coordinator.leader_id,
                "gateways": {str(rack): sorted(node_ids) for rack, node_ids in placed[coordinator.shard].items()},
            }
            for coordinator in cluster.coordinators
        ],
        "brokers": [asdict(broker) for broker in gateway_brokers(cluster, placed)],
    }


def _plan_lines(name: str, cluster: Cluster, placed: Gateways, summary: GatewaySummary) -> Iterable[str]:
    racks = list(placed[cluster.coordinators[0].shard])
    yield (
        f"{GATEWAY_PLACEMENT.name}={name}: {len(cluster.brokers)} brokers in {len(racks)} racks, "
        f"{len(cluster.coordinators)} coordinators"
    )
    yield f"  gateways of a coordinator in each rack: {summary.gateways_per_rack}"
    yield f"  coordinators that a broker is a gateway of: {summary.coordinators_per_broker}"
    yield (
        f"  network commits for one WAL object, at the worst: {summary.network_commits} "
        f"(without gateways {summary.network_commits_without_gateways})\n"
    )
    rows = [["coordinator", "leader", *map(str, racks)]]
    for coordinator in cluster.coordinators:
        here = [", ".join(map(str, sorted(placed[coordinator.shard][rack]))) for rack in racks]
        rows.append([str(coordinator.shard), str(coordinator.leader_id), *here])
    yield from _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
