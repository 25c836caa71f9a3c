"""Tests of one group are run by one worker, which alone has the Apache Kafka, the Spark or the site that they share."""

import pytest


@pytest.mark.xdist_group("seen")
def test_a_worker_sees_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("this process is no worker of `--dist loadgroup`")
    assert request.node.nodeid.endswith("@seen")
