"""The two brokers that are compared, and that both are warm: what their first answers wait for has happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import settings

from tests.differential.language import Ask, Scenario
from tests.differential.player import Player
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import BrokerProcess

settings.register_profile("long", max_examples=2000)

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
    broker = BrokerProcess(tmp_path_factory.mktemp("compared"), {"node.id": "1"})
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.end()


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
