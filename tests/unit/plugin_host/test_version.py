"""Which plugin API versions a broker accepts."""

from __future__ import annotations

import pytest

from diskless_core.plugin.version import API_VERSION
from diskless_core.plugin_host.checking import incompatibility


@pytest.mark.parametrize("wanted", ["1.0", "1.3", "1.10"])
def test_an_older_or_equal_minor_version_of_the_same_major_is_accepted(wanted):
    assert incompatibility(wanted, "1.10") is None


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [("1.11", "upgrade the broker"), ("2.0", "major versions differ"), ("0.9", "major versions differ")],
)
def test_a_newer_minor_or_another_major_version_is_refused(wanted, reason):
    assert reason in incompatibility(wanted, "1.10")


@pytest.mark.parametrize("wanted", ["", "1", "1.0.0", "v1.0", "1.x"])
def test_a_version_of_another_form_is_refused(wanted):
    assert "not of the form" in incompatibility(wanted)


def test_the_brokers_own_version_is_accepted():
    assert incompatibility(API_VERSION) is None
