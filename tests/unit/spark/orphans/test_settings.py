"""Settings that cannot be meant are refused before Spark starts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from diskless_spark.orphans.config import SparkOrphanSettings


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("/srv/reports", "must be a URL"),
        ("nowhere://folder", "no file system for nowhere://"),
        ("s3://key:word@bucket/path", "must not hold credentials"),
    ],
)
def test_a_url_has_to_be_one_that_can_be_opened(url: str, reason: str) -> None:
    for setting in ("inventory_url", "report_url"):
        with pytest.raises(ValidationError, match=reason):
            SparkOrphanSettings(**{setting: url})
    assert SparkOrphanSettings(report_url="s3://bucket/path/").report_url == "s3://bucket/path"
