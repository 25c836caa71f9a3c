"""Fixtures for the tests of consumer groups."""

from __future__ import annotations

import pytest

from tests.unit.groups.script import Script


@pytest.fixture
def script() -> Script:
    return Script()
