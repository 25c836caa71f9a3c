"""What the tests of this folder share: a profile to run them for longer, and silence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings

settings.register_profile("long", max_examples=2000)


@pytest.fixture
def without_logs() -> Iterator[None]:
    """Thousands of expected warnings cost more than all the rest."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), processors=[_drop])
    yield
    structlog.configure(**before)


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent
