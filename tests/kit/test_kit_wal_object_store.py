"""The suites of `wal_object_store` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-wal-object-store")


class TestWalObjectStore(MeasuredKit):
    noun = "wal_object_store"
    least_faults = 20
