"""What gateways save: commit requests for an object, in KIP-1164's six scenarios."""

from __future__ import annotations

import pytest

from tests.support.commits_per_object import COORDINATORS, PAGE, RACKS, SCENARIOS, count, page_with, render


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_no_object_needs_more_requests_than_the_kip_says(scenario):
    counted = count(scenario.brokers, with_gateways=True)

    assert counted.most <= max(scenario.bound, RACKS - 1)
    assert len(counted.by_object) == scenario.brokers, "every broker makes an object"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_without_gateways_an_object_needs_a_request_for_each_broker_that_leads(scenario):
    counted = count(scenario.brokers, with_gateways=False)
    leading = min(scenario.brokers, COORDINATORS)

    assert counted.most == min(scenario.brokers - 1, COORDINATORS)
    assert set(counted.by_object) <= {leading - 1, leading}


def test_the_page_has_what_is_counted():
    assert page_with(render()) == PAGE.read_text(encoding="utf-8")
