"""The suites of `gateway_placement` find what is wrong with a backend."""

from __future__ import annotations

import pytest

from tests.kit.measured import MeasuredKit

pytestmark = pytest.mark.xdist_group("kit-gateway-placement")


class TestGatewayPlacement(MeasuredKit):
    noun = "gateway_placement"
    least_faults = 6
