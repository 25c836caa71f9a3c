"""`diskless cluster cost`: what a cluster costs in a month, from its metrics or from a plan of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from diskless_core.cli import admin_client, common
from diskless_core.cli.cluster_admin import ClusterAdmin
from diskless_core.cli.gateways import network_commits
from diskless_core.cli.tables import echo_table
from diskless_core.cluster import prices as price_lists
from diskless_core.cluster.cost_model import Modelled, Plan, modelled
from diskless_core.cluster.costs import Cost, Prices, Traffic, diskless_costs, kafka_costs, total
from diskless_core.cluster.measured_traffic import Scrape, ScrapeError, parsed, traffic_between

SCRAPE_TIMEOUT_S = 10.0

_SIZE = re.compile(r"(?P<number>[0-9.]+) ?(?P<unit>[KMGT]i?B|B)?(/s)?")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} | {
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_PLAN: Mapping[str, str] = {
    "brokers": "brokers",
    "coordinators": "coordinators",
    "racks": "racks",
    "produce": "produce",
    "fanout": "fanout",
    "interval": "commit_interval_s",
    "batch": "batch_bytes",
    "client-racks": "clients_have_racks",
}


def cost(
    window_s: Annotated[float, typer.Option("--window", min=0.1, help="Seconds between two looks.")] = 30.0,
    retention_h: Annotated[
        float, typer.Option("--retention", min=0, help="Hours for which records are kept; they are what is stored.")
    ] = 168.0,
    prices: Annotated[
        Path | None, typer.Option("--prices", exists=True, dir_okay=False, help="Prices instead of the built-in ones.")
    ] = None,
    before: Annotated[
        list[Path] | None,
        typer.Option("--before", exists=True, dir_okay=False, help="Saved answer to GET /metrics, one a broker."),
    ] = None,
    after: Annotated[
        list[Path] | None,
        typer.Option("--after", exists=True, dir_okay=False, help="The same, --window seconds later."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="A cluster to be built, such as brokers=108,coordinators=12,produce=1GiB/s,fanout=2. Also racks, "
            "interval (of commits, in seconds), batch (its size) and client-racks (yes or no).",
        ),
    ] = None,
    url: admin_client.UrlsOption = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Estimate a month of what the cluster does now, beside a replicated Kafka with the same traffic.

    The metrics of all brokers are read twice, and what came in between is taken for the whole month.
    """
    tariff = _prices(prices)
    plan: Modelled | None = None
    if model is not None:
        plan = modelled(_plan(model, config, override), retention_s=retention_h * 3600)
        traffic = plan.traffic
    else:
        try:
            scrapes = _saved(before or (), after or ()) if before or after else _looks(url, config, override, window_s)
            traffic = traffic_between(*scrapes, window_s=window_s, retention_s=retention_h * 3600)
        except (ScrapeError, admin_client.AdminClientError) as error:
            common.fail(str(error))
    bills = {
        "diskless": diskless_costs(traffic, tariff),
        "kafka": kafka_costs(traffic, tariff, retention_s=retention_h * 3600, fetch_from_follower=False),
        "kafka_fetch_from_follower": kafka_costs(
            traffic, tariff, retention_s=retention_h * 3600, fetch_from_follower=True
        ),
    }
    if as_json:
        common.echo_json(_json(traffic, plan, tariff, bills))
    else:
        _echo(traffic, plan, tariff, bills)


# --- what it is about --------------------------------------------------------------------------------------------


def _prices(file: Path | None) -> Prices:
    if file is None:
        return price_lists.built_in()
    try:
        return price_lists.parsed(file.read_text("utf-8"))
    except ValueError as error:
        common.fail(f"{file} is no file of prices: {error}")


def _plan(text: str, config: Path | None, override: Sequence[str] | None) -> Plan:
    fields: dict[str, Any] = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        if name not in _PLAN:
            raise typer.BadParameter(f"there is no {name!r}; there are {', '.join(_PLAN)}", param_hint="--model")
        try:
            fields[_PLAN[name]] = _value(name, value)
        except ValueError:
            raise typer.BadParameter(f"{name} cannot be {value!r}", param_hint="--model") from None
    if missing := [name for name in ("brokers", "coordinators", "produce") if name not in fields]:
        raise typer.BadParameter(f"it needs {', '.join(missing)}", param_hint="--model")
    racks = fields.setdefault("racks", 3)
    if racks > fields["brokers"]:
        raise typer.BadParameter(f"{racks} racks need at least as many brokers", param_hint="--model")
    sizes = {name: fields[name] for name in ("brokers", "racks", "coordinators")}
    with_gateways, without = network_commits(**sizes, config=config, override=override)
    commits = with_gateways if fields.get("clients_have_racks", True) else without
    return Plan(**fields, network_commits=commits)


def _value(name: str, text: str) -> float | int | bool:
    """Raises:
    ValueError: it is none.
    """
    if name == "client-racks":
        return {"yes": True, "no": False}[text] if text in ("yes", "no") else bool(int(text))
    if name in ("produce", "batch"):
        return _size(text)
    number = float(text) if name in ("fanout", "interval") else int(text)
    if number < 0 or (number == 0 and name != "fanout"):
        raise ValueError(text)
    return number


def _size(text: str) -> float:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    size = float(found["number"]) * _UNITS[found["unit"] or "B"]
    if size <= 0:
        raise ValueError(text)
    return size


def _saved(before: Sequence[Path], after: Sequence[Path]) -> tuple[list[Scrape], list[Scrape]]:
    def read(files: Sequence[Path]) -> list[Scrape]:
        return [parsed(file.read_text("utf-8")) for file in files]

    return read(before), read(after)


def _looks(
    url: list[str] | None, config: Path | None, override: list[str] | None, window_s: float
) -> tuple[list[Scrape], list[Scrape]]:
    cluster = ClusterAdmin(admin_client.addresses(url, config, override))
    urls = [cluster.url_of(broker.node_id) for broker in cluster.view().brokers if not broker.is_fenced]
    first = _scraped(urls)
    threading.Event().wait(window_s)
    return first, _scraped(urls)


def _scraped(urls: Sequence[str]) -> list[Scrape]:
    def scrape(url: str) -> Scrape:
        return parsed(admin_client.metrics(url, SCRAPE_TIMEOUT_S))

    with ThreadPoolExecutor(max(1, min(16, len(urls)))) as pool:
        return list(pool.map(scrape, urls))


# --- how it is shown ---------------------------------------------------------------------------------------------

_TITLES = {
    "diskless": "Diskless",
    "kafka": "a replicated Kafka",
    "kafka_fetch_from_follower": "the same, consumers fetch from followers",
}


def _json(
    traffic: Traffic, plan: Modelled | None, prices: Prices, bills: Mapping[str, list[Cost]]
) -> Mapping[str, Any]:
    modelled_too = {} if plan is None else {"objects": plan.objects, "commit_requests": plan.commit_requests}
    return {
        "prices": asdict(prices),
        "traffic": asdict(traffic) | modelled_too,
        "months": {
            name: {"costs": [asdict(one) for one in bill], "dollars": total(bill)} for name, bill in bills.items()
        },
    }


def _echo(traffic: Traffic, plan: Modelled | None, prices: Prices, bills: Mapping[str, list[Cost]]) -> None:
    rows = [
        ["brokers", f"{traffic.brokers}"],
        ["produced", _rate(traffic.produced)],
        ["consumed", _rate(traffic.consumed)],
        ["PUT and LIST requests", f"{traffic.puts:,.1f}/s"],
        ["GET requests", f"{traffic.gets:,.1f}/s"],
    ]
    if plan is not None:
        rows += [
            ["WAL objects", f"{plan.objects:,.1f}/s"],
            ["commit requests between brokers", f"{plan.commit_requests:,.1f}/s"],
        ]
    rows += [
        ["to and from clients of other racks", _rate(traffic.clients_other_rack)],
        ["to and from clients of unknown racks", _rate(traffic.clients_unknown_rack)],
        *(
            [f"between brokers of other racks: {purpose}", _rate(rate)]
            for purpose, rate in traffic.brokers_other_rack.items()
        ),
    ]
    echo_table(["what", "now"], rows)
    typer.echo(f"\nA month of this, {prices.as_of}:\n")
    lines = [
        [_TITLES[name], one.what, f"{one.amount:,.0f} {one.unit}", f"${one.dollars:,.0f}"]
        for name, bill in bills.items()
        for one in [*bill, Cost(what="total", amount=0, unit="", dollars=total(bill))]
    ]
    echo_table(["cluster", "what", "amount", "dollars"], [[a, b, "" if b == "total" else c, d] for a, b, c, d in lines])
    if not traffic.requests_are_billed:
        typer.echo(
            "The brokers keep their objects where nobody bills requests, such as in a folder: no bucket is billed now. "
            "These are the prices of a bucket. There, brokers gather for longer and make fewer requests: see --model."
        )
    if traffic.clients_unknown_rack:
        typer.echo("Bytes of clients whose racks are unknown are in no bill: see diskless_az in docs/cluster.md.")


def _rate(bytes_s: float) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        if bytes_s >= _UNITS[unit]:
            return f"{bytes_s / _UNITS[unit]:,.1f} {unit}/s"
    return f"{bytes_s:,.0f} B/s"
