from __future__ import annotations

import pytest

from tests.unit.groups.script import Script


@pytest.fixture
def script() -> Script:
    return Script()
