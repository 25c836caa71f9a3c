"""`diskless.coordinator.placement` as an operator writes it. Who may lead by it: see the tests of the coordinators."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from diskless_core.config.broker import BrokerConfig
from diskless_core.config.describe import configured
from diskless_core.config.placement import Placement
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, SHARD_KINDS, parse_shard, short_name

PLACEMENT = "diskless.coordinator.placement"


def config(placement, shards=2):
    return BrokerConfig.model_validate(
        {
            PLACEMENT: placement,
            "diskless.metadata.topic.num.partitions": str(shards),
            "offsets.topic.num.partitions": "3",
        }
    )


def test_coordinators_are_named_by_index_or_name_and_come_back_as_they_were_written():
    broker = config("0:1|2, diskless-1:3,cluster-0:1,*:4")

    assert broker.diskless_coordinator_placement == (
        Placement(DISKLESS.shard(0), (1, 2)),
        Placement(DISKLESS.shard(1), (3,)),
        Placement(CLUSTER_SHARD, (1,)),
        Placement(None, (4,)),
    )
    assert configured(broker)[PLACEMENT] == "0:1|2,1:3,cluster-0:1,*:4"


def test_nothing_is_placed_by_default():
    assert BrokerConfig().diskless_coordinator_placement == ()
    assert config("").diskless_coordinator_placement == ()


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ("0", "is not of the form <coordinator>:<broker id>|<broker id>"),
        ("0:", "is not of the form"),
        ("0:1|", "is not of the form"),
        ("0:1,2", "'2' is not of the form"),
        ("0:a", "is not of the form"),
        ("x:1", "'x' is no shard"),
        ("0:1,diskless-0:2", "0 is placed twice"),
        ("*:1,*:2", "* is placed twice"),
        ("2:1", "there is no coordinator 2: diskless.metadata.topic.num.partitions is 2"),
        ("cluster-1:1", "there is no coordinator cluster-1"),
        ("groups-3:1", "there is no coordinator groups-3: offsets.topic.num.partitions is 3"),
    ],
)
def test_a_placement_that_means_nothing_is_refused(placement, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        config(placement)


@pytest.mark.parametrize("shard", [kind.shard(index) for kind in SHARD_KINDS for index in (0, 17)])
def test_a_shard_is_read_by_either_of_its_names(shard):
    assert parse_shard(str(shard)) == shard
    assert parse_shard(short_name(shard)) == shard


@pytest.mark.parametrize("text", ["", "diskless", "diskless-", "diskless--1", "diskless-x", "topic-0", "-0"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ValueError, match="is no shard"):
        parse_shard(text)
