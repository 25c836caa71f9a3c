"""What a cluster costs in a month: requests, bytes between racks and storage, beside a replicated Kafka. Pure.

A month has 30 days. What crosses racks is billed twice, where it leaves and where it arrives. Of the replicated Kafka
three things are assumed, all in its favour: three copies in three racks, leaders and clients spread evenly over the
racks, and no byte but those of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MONTH_S = 30 * 86_400
GIB = 1 << 30
KAFKA_COPIES = 3
KAFKA_RACKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars, as in `prices.toml`."""

    as_of: str
    put_million: float
    get_million: float
    stored_gib_month: float
    cross_rack_gib: float
    disk_gib_month: float
    disk_used: float
    broker_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a cluster does, in bytes and requests a second.

    Attributes:
        produced: bytes of the batches of producers, as they are stored.
        consumed: bytes of the batches sent to consumers.
        puts: puts and pages of listings.
        clients_other_rack: bytes to and from clients of another rack than the broker's.
        clients_unknown_rack: the same, of clients whose rack is not known. They are no part of the costs.
        brokers_other_rack: bytes between brokers of different racks, by purpose.
        stored_bytes: what lies in the object store; no rate.
        brokers: how many there are.
        requests_are_billed: whether anybody bills the puts and gets. Where nobody does, as in a folder, brokers do not
            gather for their sake: a bucket would get fewer.
    """

    produced: float
    consumed: float
    puts: float
    gets: float
    clients_other_rack: float
    brokers_other_rack: Mapping[str, float] = field(default_factory=dict)
    clients_unknown_rack: float = 0.0
    stored_bytes: float
    brokers: int
    requests_are_billed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One line of a bill: so much of something a month, and dollars."""

    what: str
    amount: float
    unit: str
    dollars: float


def diskless_costs(traffic: Traffic, prices: Prices) -> list[Cost]:
    """The bill of a cluster for a month in which it does this all the time."""
    puts, gets = (each * MONTH_S / 1e6 for each in (traffic.puts, traffic.gets))
    stored = traffic.stored_bytes / GIB
    brokers = sum(traffic.brokers_other_rack.values())
    return [
        Cost(what="PUT requests", amount=puts, unit="million", dollars=puts * prices.put_million),
        Cost(what="GET requests", amount=gets, unit="million", dollars=gets * prices.get_million),
        Cost(what="storage", amount=stored, unit="GiB", dollars=stored * prices.stored_gib_month),
        _crossing("clients of other racks", traffic.clients_other_rack, prices),
        _crossing("brokers of other racks", brokers, prices),
        *_instances(traffic.brokers, prices),
    ]


def kafka_costs(traffic: Traffic, prices: Prices, *, retention_s: float, fetch_from_follower: bool) -> list[Cost]:
    """The same for a replicated Kafka with the same traffic and as many brokers.

    Args:
        fetch_from_follower: whether consumers read in their own racks (KIP-392).
    """
    elsewhere = (KAFKA_RACKS - 1) / KAFKA_RACKS
    stored = KAFKA_COPIES * traffic.produced * retention_s / GIB / prices.disk_used
    consumed = 0.0 if fetch_from_follower else traffic.consumed * elsewhere
    return [
        Cost(what="disks", amount=stored, unit="GiB", dollars=stored * prices.disk_gib_month),
        _crossing("producers of other racks", traffic.produced * elsewhere, prices),
        _crossing("consumers of other racks", consumed, prices),
        _crossing("replication", traffic.produced * (KAFKA_COPIES - 1), prices),
        *_instances(traffic.brokers, prices),
    ]


def total(costs: list[Cost]) -> float:
    """Dollars of all lines."""
    return sum(one.dollars for one in costs)


def _crossing(what: str, bytes_s: float, prices: Prices) -> Cost:
    crossed = bytes_s * MONTH_S / GIB
    return Cost(what=what, amount=crossed, unit="GiB across racks", dollars=crossed * 2 * prices.cross_rack_gib)


def _instances(brokers: int, prices: Prices) -> list[Cost]:
    if not prices.broker_hour:
        return []
    hours = brokers * MONTH_S / 3600
    return [Cost(what="brokers", amount=hours, unit="hours", dollars=hours * prices.broker_hour)]


def prices_of(content: Mapping[str, object]) -> Prices:
    """The prices in the content of a file like `prices.toml`.

    Raises:
        ValueError: something is missing, or is no price.
    """

    def number(section: str, name: str) -> float:
        table = content.get(section)
        value = table.get(name) if isinstance(table, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ValueError(f"[{section}] needs {name}, a number of at least 0")
        return float(value)

    used = number("disk", "used")
    if not 0 < used <= 1:
        raise ValueError("[disk] needs used, more than 0 and at most 1")
    return Prices(
        as_of=str(content.get("as_of", "no date")),
        put_million=number("object_store", "put_million"),
        get_million=number("object_store", "get_million"),
        stored_gib_month=number("object_store", "gib_month"),
        cross_rack_gib=number("network", "cross_rack_gib"),
        disk_gib_month=number("disk", "gib_month"),
        disk_used=used,
        broker_hour=number("instance", "broker_hour"),
    )
