"""The traffic of a cluster between two looks at the metrics of its brokers. It does no I/O itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from diskless_core.cluster.costs import Traffic

Labels = frozenset[tuple[str, str]]
Series = tuple[str, Labels]

_BILLS_REQUESTS: Series = ("diskless_object_store_bills_requests", frozenset())


class ScrapeError(Exception):
    """What was scraped is not what brokers of one cluster answer; the message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What one broker answered to `GET /metrics`. `started` tells one process from the next."""

    node_id: str
    rack: str
    cluster_id: str
    started: float
    values: Mapping[Series, float]


def parsed(text: str) -> Scrape:
    """A scrape in Prometheus' text format.

    Raises:
        ScrapeError: it is no broker's, or of one that is starting.
    """
    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as error:
        raise ScrapeError(f"no metrics: {error}") from None
    info = next((sample.labels for sample in samples if sample.name == "diskless_broker_info"), None)
    if info is None:
        raise ScrapeError("there is no diskless_broker_info: these are no metrics of a broker that has started")
    values = {(sample.name, frozenset(sample.labels.items())): float(sample.value) for sample in samples}
    return Scrape(
        node_id=info["node_id"],
        rack=info["rack"],
        cluster_id=info["cluster_id"],
        started=values.get(("process_start_time_seconds", frozenset()), 0.0),
        values=values,
    )


def traffic_between(
    before: Sequence[Scrape], after: Sequence[Scrape], *, window_s: float, retention_s: float
) -> Traffic:
    """What the brokers did in between, a second. Of one that was started meanwhile it is what it has done since.

    Args:
        window_s: the time between the looks.
        retention_s: how long records are kept: what is stored is what is produced in that time.

    Raises:
        ScrapeError: they are of several clusters, or some broker is there only before.
    """
    if window_s <= 0 or not after:
        raise ScrapeError("two looks at the metrics are needed, some time apart")
    if len({scrape.cluster_id for scrape in (*before, *after)}) > 1:
        raise ScrapeError("these are metrics of several clusters")
    for scrapes in (before, after):
        if len({scrape.node_id for scrape in scrapes}) < len(scrapes):
            raise ScrapeError("one broker was scraped twice")
    first = {scrape.node_id: scrape for scrape in before}
    if gone := first.keys() - {scrape.node_id for scrape in after}:
        raise ScrapeError(f"broker {', '.join(sorted(gone))} was there before and is not any more")
    sums: dict[Series, float] = defaultdict(float)
    for scrape in after:
        known = first.get(scrape.node_id)
        is_same = known is not None and known.started == scrape.started
        for series, value in scrape.values.items():
            sums[series] += (
                value - known.values.get(series, 0.0) if known is not None and is_same else value
            ) / window_s

    def rate(name: str, **labels: str) -> float:
        wanted = labels.items()
        return sum(value for (found, has), value in sums.items() if found == f"diskless_{name}_total" and wanted <= has)

    crossing: dict[str, float] = defaultdict(float)
    for (name, labels), value in sums.items():
        said = dict(labels)
        if name == "diskless_inter_broker_bytes_total" and said["racks"] == "other":
            crossing[said["purpose"]] += value
    produced = rate("produce_bytes")
    return Traffic(
        produced=produced,
        consumed=rate("fetch_bytes"),
        puts=rate("object_store_requests", operation="put") + rate("object_store_requests", operation="list"),
        gets=rate("object_store_requests", operation="get") + rate("remote_fetch_requests"),
        clients_other_rack=rate("client_bytes", racks="other"),
        clients_unknown_rack=rate("client_bytes", racks="unknown"),
        brokers_other_rack=dict(sorted(crossing.items())),
        stored_bytes=produced * retention_s,
        brokers=len(after),
        # Brokers of older versions do not say.
        requests_are_billed=any(scrape.values.get(_BILLS_REQUESTS, 1.0) for scrape in after),
    )
