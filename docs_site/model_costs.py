"""What a large cluster costs, as docs/cluster.md shows it. From the model of `diskless cluster cost`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from diskless_core.cluster import prices
from diskless_core.cluster.cost_model import Plan, modelled
from diskless_core.cluster.costs import GIB, MONTH_S, Cost, diskless_costs, kafka_costs, total

PLAN = Plan(brokers=108, coordinators=12, racks=3, produce=float(GIB), fanout=2.0)
RETENTION_S = 7 * 86_400

_BEGIN, _END = "<!-- the table of the model, by docs_site -->\n", "<!-- end of the table of the model -->"

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "requests": ("PUT requests", "GET requests"),
    "storage": ("storage", "disks"),
    "clients across racks": ("clients of other racks", "producers of other racks", "consumers of other racks"),
    "brokers across racks": ("brokers of other racks", "replication"),
}


def bills() -> Mapping[str, list[Cost]]:
    """The bills of the table's rows."""
    rates = prices.built_in()
    plans = {
        "Diskless, commit interval 250 ms": PLAN,
        "Diskless, 1000 ms": replace(PLAN, commit_interval_s=1.0),
        "Diskless, 1000 ms, clients without racks": replace(PLAN, commit_interval_s=1.0, clients_have_racks=False),
    }
    traffic = modelled(PLAN, retention_s=RETENTION_S).traffic
    kafka = {
        "a replicated Kafka": kafka_costs(traffic, rates, retention_s=RETENTION_S, fetch_from_follower=False),
        "the same, fetching from followers": kafka_costs(
            traffic, rates, retention_s=RETENTION_S, fetch_from_follower=True
        ),
    }
    ours = {
        name: diskless_costs(modelled(plan, retention_s=RETENTION_S).traffic, rates) for name, plan in plans.items()
    }
    return {**ours, **kafka}


def table() -> str:
    """The table in Markdown. The last column is for each GiB that is produced."""
    titles = ["million PUT / GET", "TiB across racks", *_COLUMNS, "total", "a GiB"]
    lines = ["| | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    produced_gib = PLAN.produce * MONTH_S / GIB
    for name, bill in bills().items():
        requests = [f"{one.amount:,.0f}" for one in bill if one.what in _COLUMNS["requests"]]
        crossed = sum(one.amount for one in bill if one.unit == "GiB across racks") / 1024
        dollars = [f"${sum(one.dollars for one in bill if one.what in whats):,.0f}" for whats in _COLUMNS.values()]
        cells = [" / ".join(requests) or "-", f"{crossed:,.0f}", *dollars, f"${total(bill):,.0f}"]
        lines.append(f"| {name} | {' | '.join(cells)} | ${total(bill) / produced_gib:.4f} |")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """A page with the table between its marks."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise ValueError("the page has no marks for the table of the model")
    return f"{before}{_BEGIN}\n{table()}\n\nPrices: {prices.built_in().as_of}.\n\n{_END}{after}"
