"""What a month costs, by hand-made figures."""

from __future__ import annotations

from importlib import resources

import pytest

from diskless_core.cluster.cost_model import Plan, modelled
from diskless_core.cluster.costs import GIB, MONTH_S, Prices, Traffic, diskless_costs, kafka_costs, total
from diskless_core.cluster.prices import built_in, parsed

PRICES = Prices(
    as_of="today",
    put_million=5,
    get_million=0.5,
    stored_gib_month=0.02,
    cross_rack_gib=0.01,
    disk_gib_month=0.1,
    disk_used=0.5,
    broker_hour=0,
)
A_GIB_A_MONTH = GIB / MONTH_S


def traffic(**rates: float) -> Traffic:
    some = {"produced": 0.0, "consumed": 0.0, "puts": 0.0, "gets": 0.0, "clients_other_rack": 0.0, "stored_bytes": 0.0}
    return Traffic(
        **{**some, **rates}, brokers_other_rack={"commits": A_GIB_A_MONTH, "entries": A_GIB_A_MONTH}, brokers=3
    )


def test_requests_storage_and_both_ends_of_what_crosses_racks_are_paid_for() -> None:
    million = 1e6 / MONTH_S
    bill = diskless_costs(
        traffic(puts=2 * million, gets=4 * million, stored_bytes=100 * GIB, clients_other_rack=10 * A_GIB_A_MONTH),
        PRICES,
    )

    assert {one.what: pytest.approx(one.dollars) for one in bill} == {
        "PUT requests": 10,
        "GET requests": 2,
        "storage": 2,
        "clients of other racks": 0.2,
        "brokers of other racks": 0.04,
    }


def test_a_replicated_kafka_pays_for_copies_and_for_clients_of_other_racks() -> None:
    month = traffic(produced=3 * A_GIB_A_MONTH, consumed=6 * A_GIB_A_MONTH)

    bill = kafka_costs(month, PRICES, retention_s=MONTH_S, fetch_from_follower=False)
    followed = kafka_costs(month, PRICES, retention_s=MONTH_S, fetch_from_follower=True)

    assert {one.what: pytest.approx(one.dollars) for one in bill} == {
        "disks": 3 * 3 / 0.5 * 0.1,
        "producers of other racks": 2 * 0.02,
        "consumers of other racks": 4 * 0.02,
        "replication": 6 * 0.02,
    }
    assert total(bill) - total(followed) == pytest.approx(4 * 0.02)


def test_brokers_are_on_the_bill_where_they_have_a_price() -> None:
    prices = parsed(_built_in().replace("broker_hour = 0.0", "broker_hour = 0.5"))

    [instances] = [one for one in diskless_costs(traffic(), prices) if one.what == "brokers"]

    assert (instances.amount, instances.dollars) == (3 * 720, 3 * 360)


def test_the_built_in_prices_say_what_day_they_are_of() -> None:
    assert "2025" in built_in().as_of


@pytest.mark.parametrize(
    ("line", "instead"),
    [("put_million = 5.00", ""), ("gib_month = 0.023", 'gib_month = "cheap"'), ("used = 1.0", "used = 0")],
)
def test_a_file_of_prices_that_lacks_one_is_refused(line: str, instead: str) -> None:
    with pytest.raises(ValueError, match="needs"):
        parsed(_built_in().replace(line, instead))


def test_objects_are_written_at_each_interval_or_when_they_are_full() -> None:
    slow = modelled(Plan(brokers=10, coordinators=1, produce=1000.0), retention_s=0)
    fast = modelled(Plan(brokers=10, coordinators=1, produce=800 * (8 << 20), network_commits=2), retention_s=0)

    assert slow.objects == 40
    assert (fast.objects, fast.commit_requests) == (800, 1600)


def test_a_client_without_a_rack_crosses_racks_in_two_of_three_bytes() -> None:
    with_racks = modelled(Plan(brokers=9, coordinators=3, produce=900.0, fanout=2), retention_s=10)
    without = modelled(
        Plan(brokers=9, coordinators=3, produce=900.0, fanout=2, clients_have_racks=False), retention_s=10
    )

    assert with_racks.traffic.clients_other_rack == 0
    assert without.traffic.clients_other_rack == pytest.approx(1800)
    assert with_racks.traffic.stored_bytes == 9000


def test_one_rack_has_nothing_to_cross() -> None:
    made = modelled(Plan(brokers=3, coordinators=3, racks=1, produce=900.0), retention_s=0).traffic

    assert sum(made.brokers_other_rack.values()) == made.clients_other_rack == 0


def _built_in() -> str:
    return resources.files("diskless_core.cluster").joinpath("prices.toml").read_text("utf-8")
