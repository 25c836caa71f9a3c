"""A stock Apache Kafka and Diskless answer the same requests alike, but for the differences that are meant."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential.language import Scenario
from tests.differential.player import Player, compare, name_of
from tests.differential.scenarios import SCENARIOS, records


def cases(scenarios: tuple[Scenario, ...]) -> list[Any]:
    return [
        pytest.param(played, version, id=name_of(played, version))
        for played in scenarios
        for version in played.versions
    ]


@pytest.mark.parametrize(("played", "version"), cases(SCENARIOS))
def test_both_brokers_answer_alike(pair, played, version):
    name = name_of(played, version)

    kafka = Player(pair.kafka, name, played, version).play()
    diskless = Player(pair.diskless, name, played, version).play()

    compare(kafka, diskless, played)


@pytest.mark.parametrize(("played", "version"), cases(records.UNCHECKED))
def test_a_broker_that_checks_the_beginning_of_a_batch_answers_alike(pair_without_a_walk, played, version):
    name = name_of(played, version)

    kafka = Player(pair_without_a_walk.kafka, name, played, version).play()
    diskless = Player(pair_without_a_walk.diskless, name, played, version).play()

    compare(kafka, diskless, played)
