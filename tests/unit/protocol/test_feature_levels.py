"""Which level of `diskless.version` each record came with."""

from __future__ import annotations

from typing import Any

import pytest

from diskless_core.cluster import records as cluster_records
from diskless_core.cluster.records import ClusterNamed
from diskless_core.groups.model import NO_TIMESTAMP, CommittedOffset
from diskless_core.groups.records import OffsetRecord
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.protocol import messages
from diskless_core.protocol.feature_levels import (
    BUILD_LEVELS,
    FIRST_LEVEL,
    RECORDS_OF_LEVELS,
    FeatureLevelError,
    FeatureLevels,
    LevelRange,
)
from diskless_core.protocol.record_frames import GROUP_RECORDS
from tests.support.next_build import NEXT_LEVEL, NEXT_LEVELS, note

NAMED = cluster_records.encode(ClusterNamed(cluster_id="c"))


def all_records() -> set[tuple[Any, int]]:
    """Every record that a log or a snapshot can hold, with each version."""
    classes = [*messages.METADATA_RECORDS.values(), *GROUP_RECORDS.values.values()]
    found = {(one, version) for one in classes for version in range(one.valid_versions[0], one.valid_versions[1] + 1)}
    for key in GROUP_RECORDS.values:
        found |= {(key, version) for version in range(key.valid_versions[0], key.valid_versions[1] + 1)}
    return found


def test_every_version_of_every_record_came_with_exactly_one_level():
    declared = [
        (record.__name__, version)
        for classes in RECORDS_OF_LEVELS.values()
        for record, versions in classes.items()
        for version in versions
    ]
    assert sorted(declared) == sorted((record.__name__, version) for record, version in all_records())


def test_the_levels_of_builds_follow_one_another_without_a_gap():
    assert sorted(RECORDS_OF_LEVELS) == list(range(FIRST_LEVEL, max(RECORDS_OF_LEVELS) + 1))


def test_a_build_supports_its_level_and_the_one_below():
    assert FeatureLevels({1: {}}).supported == LevelRange(1, 1)
    assert FeatureLevels({1: {}, 2: {}}).supported == LevelRange(1, 2)
    assert FeatureLevels({1: {}, 2: {}, 3: {}}).supported == LevelRange(2, 3)


def test_a_record_may_be_written_from_its_level_on():
    NEXT_LEVELS.require(NAMED, FIRST_LEVEL)
    NEXT_LEVELS.require(note("n"), NEXT_LEVEL)
    with pytest.raises(FeatureLevelError, match=rf"needs diskless.version {NEXT_LEVEL}, and {NEXT_LEVEL - 1} is"):
        NEXT_LEVELS.require(note("n"), NEXT_LEVEL - 1)


def test_a_record_that_no_level_declares_needs_the_newest():
    undeclared = FeatureLevels({1: {messages.TopicRecord: (0,)}, 2: {}})
    undeclared.require(NAMED, 2)
    with pytest.raises(FeatureLevelError):
        undeclared.require(NAMED, 1)


def test_a_record_with_a_key_needs_the_level_of_its_key_and_that_of_its_value():
    value = CommittedOffset(
        topic_id=None,
        offset=1,
        leader_epoch=0,
        metadata="",
        commit_timestamp_ms=1,
        expire_timestamp_ms=NO_TIMESTAMP,
    )
    written, deleted = (
        GroupsMachine().encode(OffsetRecord(group_id="g", topic="t", partition=0, value=one)) for one in (value, None)
    )
    both = messages.OffsetCommitKey, messages.OffsetCommitValue
    old_key = FeatureLevels({1: {both[0]: (1,)}, 2: {both[1]: (3,)}})

    BUILD_LEVELS.require(written, FIRST_LEVEL, GROUP_RECORDS)
    old_key.require(deleted, 1, GROUP_RECORDS)
    old_key.require(written, 2, GROUP_RECORDS)
    with pytest.raises(FeatureLevelError):
        old_key.require(written, 1, GROUP_RECORDS)
