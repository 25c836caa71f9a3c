"""The list of allowed differences says what is true: the page shows it, and a scenario shows each entry."""

from __future__ import annotations

from tests.differential.differences import ALLOWED, PAGE, rendered_page
from tests.differential.scenarios import SCENARIOS, records


def test_the_page_shows_the_list():
    assert PAGE.read_text() == rendered_page()


def test_every_difference_has_a_scenario_that_shows_it_or_is_allowed_everywhere():
    expected = {name for played in (*SCENARIOS, *records.UNCHECKED) for name in played.differs}

    assert expected == {allowed.name for allowed in ALLOWED if not allowed.everywhere}


def test_the_names_of_differences_and_scenarios_are_unique():
    for names in ([allowed.name for allowed in ALLOWED], [played.title for played in (*SCENARIOS, *records.UNCHECKED)]):
        assert len(set(names)) == len(names)
