"""Rates of a cluster from two looks at its brokers' metrics."""

from __future__ import annotations

import pytest

from diskless_core.cluster.measured_traffic import Scrape, ScrapeError, parsed, traffic_between
from diskless_core.metrics import Metrics


def scrape(
    node_id: int, *, produced: float = 0, puts: float = 0, crossed: float = 0, cluster: str = "c", started: float = 1
) -> Scrape:
    metrics = Metrics()
    metrics.broker_info.labels(str(node_id), "a", cluster).set(1)
    metrics.produce_bytes.inc(produced)
    metrics.object_store_requests.labels("records", "put").inc(puts)
    metrics.object_store_requests.labels("log", "list").inc(1)
    metrics.client_bytes.labels("produced", "other").inc(crossed)
    metrics.client_bytes.labels("produced", "unknown").inc(2 * crossed)
    metrics.inter_broker_bytes.labels("commits", "sent", "other").inc(crossed)
    metrics.inter_broker_bytes.labels("commits", "received", "other").inc(crossed)
    metrics.inter_broker_bytes.labels("commits", "sent", "same").inc(1000 * crossed)
    found = parsed(metrics.exposition().decode())
    return Scrape(
        node_id=found.node_id, rack=found.rack, cluster_id=found.cluster_id, started=started, values=found.values
    )


def test_what_all_brokers_did_in_between_is_added_up() -> None:
    before = [scrape(1, produced=100, puts=5, crossed=10), scrape(2, produced=50)]
    after = [scrape(1, produced=300, puts=9, crossed=30), scrape(2, produced=150, puts=2)]

    found = traffic_between(before, after, window_s=10, retention_s=100)

    assert (found.produced, found.brokers) == (30, 2)
    assert found.puts == pytest.approx(0.6)
    assert (found.clients_other_rack, found.clients_unknown_rack) == (2, 4)
    assert found.brokers_other_rack == {"commits": 4}
    assert found.stored_bytes == 3000


def test_of_a_broker_that_was_restarted_counts_what_it_has_done_since() -> None:
    found = traffic_between(
        [scrape(1, produced=1000, started=1)], [scrape(1, produced=30, started=2)], window_s=10, retention_s=0
    )

    assert found.produced == 3


@pytest.mark.parametrize(("said", "is_billed"), [(0.0, False), (1.0, True), (None, True)])
def test_brokers_say_whether_anybody_bills_their_requests(said: float | None, is_billed: bool) -> None:
    """None is a broker of an older version."""
    one = scrape(1)
    name = ("diskless_object_store_bills_requests", frozenset[tuple[str, str]]())
    values = {series: value for series, value in one.values.items() if series != name}
    values |= {} if said is None else {name: said}
    looked = Scrape(node_id="1", rack="a", cluster_id="c", started=1, values=values)

    assert traffic_between([looked], [looked], window_s=1, retention_s=1).requests_are_billed is is_billed


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ([scrape(1)], [scrape(2)], "not any more"),
        ([scrape(1)], [scrape(1, cluster="d")], "several clusters"),
        ([scrape(1)], [scrape(1), scrape(1)], "twice"),
        ([], [], "two looks"),
    ],
)
def test_looks_that_do_not_fit_are_refused(before: list[Scrape], after: list[Scrape], problem: str) -> None:
    with pytest.raises(ScrapeError, match=problem):
        traffic_between(before, after, window_s=1, retention_s=0)


def test_what_is_no_answer_of_a_broker_is_refused() -> None:
    with pytest.raises(ScrapeError, match="diskless_broker_info"):
        parsed(Metrics().exposition().decode())
