"""A stock Apache Kafka and Diskless answer the same requests alike, but for the differences that are meant."""

from __future__ import annotations

import pytest

from tests.differential.player import Player, compare, name_of
from tests.differential.scenarios import SCENARIOS

CASES = [
    pytest.param(played, version, id=name_of(played, version)) for played in SCENARIOS for version in played.versions
]


@pytest.mark.parametrize(("played", "version"), CASES)
def test_both_brokers_answer_alike(pair, played, version):
    name = name_of(played, version)

    kafka = Player(pair.kafka, name, played, version).play()
    diskless = Player(pair.diskless, name, played, version).play()

    compare(kafka, diskless, played)
