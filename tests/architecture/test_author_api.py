"""What authors of plugins rely on stays: the author API of `author_api.txt` is only added to."""

from __future__ import annotations

from tests.support.api_surface import FILE, surface

PROMISED = FILE.read_text(encoding="utf-8").splitlines()


def test_nothing_of_the_author_api_is_gone_or_changed() -> None:
    """Deprecate instead, see docs/plugin_api.md. A line may change where all that was right before still is."""
    assert sorted(set(PROMISED) - set(surface())) == []


def test_what_was_added_is_promised_too() -> None:
    assert sorted(set(surface()) - set(PROMISED)) == [], "write it down: python -m tests.support.api_surface"


def test_an_author_never_has_to_write_more_than_in_the_first_version() -> None:
    """An abstract method, or an attribute without a default, that is new would break every plugin that is there."""
    assert sum(line.endswith("required") and " field" not in line for line in surface()) == sum(
        line.endswith("required") and " field" not in line for line in PROMISED
    )
