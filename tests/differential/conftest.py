"""The two brokers that are compared, and that both are warm: what their first answers wait for has happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from diskless_core.config.types import RecordValidation
from tests.differential.cluster_player import ClusterPlayer, coordinator_of
from tests.differential.language import Ask, Scenario
from tests.differential.player import Player
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import BrokerCluster
from tests.support.waiting import wait_until

settings.register_profile("long", max_examples=2000)

_GROUPS = 32
_DEFECTS = ("Traceback (most recent call last)", "defect of the broker")
_WARM_UP = Scenario(
    title="warm up",
    steps=(
        Ask(api="FindCoordinator", fields={"coordinator_keys": ["g"]}, until={"coordinators.0.error_code": 0}),
        Ask(
            api="OffsetFetch",
            fields={"groups": [{"group_id": "warm-up", "topics": None}]},
            until={"groups.0.error_code": 0},
        ),
        Ask(
            api="InitProducerId",
            fields={"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1},
            until={"error_code": 0},
        ),
    ),
)


class Pair(NamedTuple):
    """The addresses of the two brokers."""

    kafka: str
    diskless: str


@pytest.fixture(scope="session")
def _diskless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    yield from _running(tmp_path_factory.mktemp("compared"), RecordValidation.ALL)


def _running(folder: Path, validation: RecordValidation) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(folder, {"node.id": "1", "diskless.produce.records.validation": validation.value})
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.end()


@pytest.fixture(scope="session")
def pair_without_a_walk(apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A stock Kafka, and a broker that checks no record behind the first one of a batch."""
    for broker in _running(tmp_path_factory.mktemp("unchecked"), RecordValidation.FIRST):
        yield Pair(apache_kafka.bootstrap, broker.bootstrap)


@pytest.fixture(scope="session")
def _warm(apache_kafka: ApacheKafka, _diskless: BrokerProcess) -> Pair:
    pair = Pair(apache_kafka.bootstrap, _diskless.bootstrap)
    for address in pair:
        Player(address, "warm-up", _WARM_UP, -1).play()
    return pair


@pytest.fixture
def pair(_warm: Pair, _diskless: BrokerProcess) -> Iterator[Pair]:
    """Both brokers; ours must log no defect of its own meanwhile."""
    before = _diskless.log.stat().st_size
    yield _warm
    logged = _diskless.log_text(before)
    assert not any(defect in logged for defect in _DEFECTS), logged


class PairWithACluster(NamedTuple):
    """The address of a stock Kafka and those of a cluster's brokers, of which the first leads nothing."""

    kafka: str
    cluster: list[str]


@pytest.fixture(scope="session")
def _warm_cluster(apache_kafka: ApacheKafka, shared_cluster: BrokerCluster) -> PairWithACluster:
    first = shared_cluster.follower
    with first.connect() as wire:
        for number in range(_GROUPS):  # so many belong to all coordinators
            wait_until(lambda group=f"warm-up-{number}": coordinator_of(wire, group), "groups have coordinators")
    others = [broker.bootstrap for broker in shared_cluster.brokers.values() if broker is not first]
    pair = PairWithACluster(apache_kafka.bootstrap, [first.bootstrap, *others])
    Player(pair.kafka, "warm-up", _WARM_UP, -1).play()
    ClusterPlayer(pair.cluster, "warm-up", _WARM_UP, -1).play()
    return pair


@pytest.fixture
def pair_with_a_cluster(_warm_cluster: PairWithACluster, shared_cluster: BrokerCluster) -> Iterator[PairWithACluster]:
    """A stock Kafka and a cluster, none of whose brokers may log a defect meanwhile."""
    brokers = list(shared_cluster.brokers.values())
    before = [broker.log.stat().st_size for broker in brokers]
    yield _warm_cluster
    for broker, size in zip(brokers, before, strict=True):
        logged = broker.log_text(size)
        assert not any(defect in logged for defect in _DEFECTS), logged
