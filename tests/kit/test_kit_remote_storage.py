"""The suites of `remote_storage` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-remote-storage")


class TestRemoteStorage(MeasuredKit):
    noun = "remote_storage"
    least_faults = 18
