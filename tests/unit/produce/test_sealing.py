"""The rule that says when an object is sealed."""

from __future__ import annotations

import pytest

from diskless_core.produce.sealing import Moment, is_due

OPEN = Moment(is_full=False, has_lingered=False, interval_is_over=False, uploads=0, slots=4, would_wait=False)


@pytest.mark.parametrize("uploads", [0, 4, 9])
def test_a_full_object_is_sealed_whatever_is_before_it(uploads: int) -> None:
    assert is_due(OPEN._replace(is_full=True, uploads=uploads, would_wait=True))


@pytest.mark.parametrize(("uploads", "due"), [(0, True), (3, True), (4, False), (5, False)])
def test_after_the_interval_an_object_is_sealed_once_a_slot_is_free(uploads: int, due: bool) -> None:
    moment = OPEN._replace(has_lingered=True, interval_is_over=True, uploads=uploads, would_wait=True)
    assert is_due(moment) is due


@pytest.mark.parametrize(
    ("uploads", "would_wait", "due"), [(0, False, True), (1, False, False), (0, True, False), (1, True, False)]
)
def test_before_the_interval_an_object_is_sealed_only_with_nothing_in_its_way(
    uploads: int, would_wait: bool, due: bool
) -> None:
    assert is_due(OPEN._replace(has_lingered=True, uploads=uploads, would_wait=would_wait)) is due


def test_no_object_is_sealed_before_it_has_lingered() -> None:
    assert not is_due(OPEN)
