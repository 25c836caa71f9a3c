"""Which offsets outlive their use, and the index of them."""

from __future__ import annotations

import struct

import pytest

from diskless_core.groups.model import CommittedOffset, PersistedGroup
from diskless_core.groups.offsets import OffsetIndex, expired_offsets
from diskless_core.groups.subscription import SubscriptionError, subscribed_topics
from diskless_core.groups.tables import GROUP_OFFSETS, GROUPS
from diskless_core.passed_time import Passed
from tests.unit.groups.script import Script

RETENTION_MS = 1_000


def offset(committed_ms, **fields):
    return CommittedOffset(offset=1, commit_timestamp_ms=committed_ms, **fields)


def subscription(*topics: str, version: int = 3) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + b"what later versions add"


def expired(offsets, now_ms, group=None, persisted=None):
    return expired_offsets(group, persisted, offsets, passed=Passed(now_ms=now_ms), retention_ms=RETENTION_MS)


def emptied(script: Script, at_ms: int) -> PersistedGroup:
    script.leave(*script.stable(1))
    return PersistedGroup(protocol_type="consumer", generation=2, protocol=None, leader=None, state_timestamp_ms=at_ms)


def test_offsets_of_simple_consumers_expire_from_their_commit():
    offsets = {("t", 0): offset(100), ("t", 1): offset(200)}
    assert expired(offsets, 1_099) == []
    assert expired(offsets, 1_100) == [("t", 0)]


def test_offsets_of_an_emptied_group_expire_from_when_it_became_empty(script):
    persisted = emptied(script, 5_000)
    offsets = {("t", 0): offset(100)}
    assert expired(offsets, 5_999, script.group, persisted) == []
    assert expired(offsets, 6_000, script.group, persisted) == [("t", 0)]


def test_offsets_of_a_rebalancing_group_stay(script):
    (member,) = script.stable(1, protocols={"range": subscription("other")})
    script.join(needs_id=True)
    script.join(member)
    assert expired({("t", 0): offset(0)}, 10**9, script.group) == []


def test_consumers_keep_what_they_subscribe_to(script):
    script.stable(2, protocols={"range": subscription("t", "u")})
    offsets = {("t", 0): offset(0), ("u", 0): offset(0), ("left", 0): offset(0)}
    assert expired(offsets, RETENTION_MS - 1, script.group) == []
    assert expired(offsets, RETENTION_MS, script.group) == [("left", 0)]


def test_members_that_are_no_consumers_keep_everything(script):
    script.stable(1, protocols={"range": b"?"})
    assert expired({("t", 0): offset(0)}, 10**9, script.group) == []


def test_a_clients_own_expiry_goes_first(script):
    persisted = emptied(script, 5_000)
    offsets = {("t", 0): offset(100, expire_timestamp_ms=150)}
    assert expired(offsets, 149, script.group, persisted) == []
    assert expired(offsets, 150, script.group, persisted) == [("t", 0)]


@pytest.mark.parametrize("version", [0, 1, 3])
def test_topics_are_read_from_any_version_of_a_subscription(version):
    assert subscribed_topics(subscription("a", "bé".encode().decode("latin-1"), version=version)) >= {"a"}
    assert subscribed_topics(subscription(version=version)) == frozenset()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00\x00",
        struct.pack(">hi", -1, 0),
        struct.pack(">hi", 0, 10**9),
        struct.pack(">hih", 0, 1, -5),
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ],
)
def test_what_is_no_subscription_is_refused(metadata):
    with pytest.raises(SubscriptionError):
        subscribed_topics(metadata)


def test_the_index_follows_commits():
    index = OffsetIndex()
    index.apply({GROUP_OFFSETS: {("g", "t", 0): offset(1), ("g", "t", 1): offset(2)}, GROUPS: {("g",): None}})
    assert set(index.of("g")) == {("t", 0), ("t", 1)}
    index.apply({GROUP_OFFSETS: {("g", "t", 0): None, ("other", "t", 0): None}})
    assert set(index.of("g")) == {("t", 1)}
    assert list(index) == ["g"]
    index.apply({GROUP_OFFSETS: {("g", "t", 1): None}})
    assert "g" not in index
    index.reset([(("h", "t", 0), offset(1))])
    assert list(index) == ["h"]


def test_the_index_knows_which_groups_have_offsets_of_a_topic():
    index = OffsetIndex()
    index.apply({GROUP_OFFSETS: {("g", "t", 0): offset(1), ("g", "t", 1): offset(2), ("h", "u", 0): offset(1)}})
    index.apply({GROUP_OFFSETS: {("g", "t", 0): offset(3), ("h", "t", 0): None}})
    assert (index.groups_of("t"), index.groups_of("u"), index.groups_of("v")) == (["g"], ["h"], [])
    index.apply({GROUP_OFFSETS: {("g", "t", 0): None}})
    assert index.groups_of("t") == ["g"]
    index.apply({GROUP_OFFSETS: {("g", "t", 1): None}})
    assert index.groups_of("t") == []
    index.reset([(("h", "t", 0), offset(1))])
    assert (index.groups_of("t"), index.groups_of("u")) == (["h"], [])
