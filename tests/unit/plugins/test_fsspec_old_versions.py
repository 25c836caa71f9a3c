"""Which lifecycle rules remove the old versions of objects below a prefix."""

from __future__ import annotations

from typing import Any

import pytest

from diskless_fsspec import gcs_conditions, s3_conditions

DAYS = {"NoncurrentDays": 1}


@pytest.mark.parametrize(
    ("rule", "removes"),
    [
        ({"Filter": {}, "NoncurrentVersionExpiration": DAYS}, True),
        ({"Filter": {"Prefix": "place/"}, "NoncurrentVersionExpiration": DAYS}, True),
        ({"Filter": {"Prefix": "place/wal-log/"}, "NoncurrentVersionExpiration": DAYS}, True),
        ({"Prefix": "place/", "NoncurrentVersionExpiration": DAYS}, True),
        ({"Prefix": "", "NoncurrentVersionExpiration": {"NoncurrentDays": 7, "NewerNoncurrentVersions": 3}}, True),
        ({"Filter": {"Prefix": "place/wal/"}, "NoncurrentVersionExpiration": DAYS}, False),
        ({"Filter": {"Prefix": "place/wal-log/0/"}, "NoncurrentVersionExpiration": DAYS}, False),
        ({"Prefix": "elsewhere/", "NoncurrentVersionExpiration": DAYS}, False),
        ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}, "NoncurrentVersionExpiration": DAYS}, False),
        ({"Filter": {"And": {"Prefix": "", "ObjectSizeGreaterThan": 5}}, "NoncurrentVersionExpiration": DAYS}, False),
        ({"Filter": {}, "Expiration": {"Days": 1}}, False),
        ({"Filter": {}, "NoncurrentVersionTransitions": [DAYS]}, False),
        ({"Status": "Disabled", "Filter": {}, "NoncurrentVersionExpiration": DAYS}, False),
    ],
)
def test_a_rule_of_s3(rule: dict[str, Any], removes: bool) -> None:
    assert s3_conditions.removes_old_versions({"Status": "Enabled", **rule}, "place/wal-log/") == removes


@pytest.mark.parametrize(
    ("condition", "removes"),
    [
        ({"daysSinceNoncurrentTime": 1}, True),
        ({"numNewerVersions": 1}, True),
        ({"age": 1, "isLive": False}, True),
        ({"daysSinceNoncurrentTime": 1, "matchesPrefix": ["other/", "place/"]}, True),
        ({"daysSinceNoncurrentTime": 1, "matchesPrefix": ["other/"]}, False),
        ({"daysSinceNoncurrentTime": 1, "matchesStorageClass": ["COLDLINE"]}, False),
        ({"age": 1, "isLive": True}, False),
        ({"isLive": False, "createdBefore": "2020-01-01"}, False),
        ({"isLive": False}, False),
    ],
)
def test_a_rule_of_google(condition: dict[str, Any], removes: bool) -> None:
    rule = {"action": {"type": "Delete"}, "condition": condition}
    assert gcs_conditions.removes_old_versions(rule, "place/wal-log/") == removes
    other = {"action": {"type": "SetStorageClass"}, "condition": condition}
    assert not gcs_conditions.removes_old_versions(other, "place/wal-log/")
