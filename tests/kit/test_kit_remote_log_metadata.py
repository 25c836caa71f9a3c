"""The suites of `remote_log_metadata` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-remote-log-metadata")


class TestRemoteLogMetadata(MeasuredKit):
    noun = "remote_log_metadata"
