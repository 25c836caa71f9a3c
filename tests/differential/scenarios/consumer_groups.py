"""The consumer group protocol of KIP-848."""

from __future__ import annotations

from typing import Any

from tests.differential.group_words import all_committed, commit, delete_groups, describe_groups, join, list_groups
from tests.differential.language import Ask, The, ask, scenario
from tests.differential.words import at, on, saving, topic, until

EPOCH = The("epoch")
JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2


def beat(member: Any = "m", epoch: Any = JOINING, *, group: str = "$", **options: Any) -> Ask:
    """ConsumerGroupHeartbeat; one that joins says everything."""
    fields: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    if epoch == JOINING:
        fields |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["$"], "topic_partitions": []}
    return ask("ConsumerGroupHeartbeat", **(fields | options))


def joined(member: str = "m", **options: Any) -> Ask:
    """Join, and wait for an assignment."""
    has_assignment = {"assignment.topic_partitions.0.partitions.0": 0}
    return saving(until(at(1, beat(member, **options)), has_assignment, shown=True), epoch="member_epoch")


def describe(*groups: str) -> Ask:
    return ask("ConsumerGroupDescribe", group_ids=list(groups), include_authorized_operations=False)


SCENARIOS = (
    scenario(
        "the life of a member",
        topic(partitions=2),
        joined(),
        beat(epoch=EPOCH),
        describe("$"),
        list_groups(),
        beat(epoch=LEAVING),
        beat(epoch=EPOCH),
        describe("$"),
        list_groups([], ["consumer"]),
    ),
    scenario(
        "heartbeats that make no sense",
        topic(),
        joined(),
        beat(epoch=50),
        beat(epoch=-3),
        beat(epoch=-5),
        beat("nobody", EPOCH),
        beat("nobody", LEAVING),
        beat(group=""),
        beat("n", rebalance_timeout_ms=-1),
        beat("n", subscribed_topic_names=None),
        beat("n", topic_partitions=None),
        beat("n", server_assignor="absent"),
        beat("n", instance_id=""),
        beat("n", rack_id=""),
        beat("m", EPOCH, group="$-absent"),
        beat("m", LEAVING_STATIC),
        about="ConsumerGroupHeartbeat",
    ),
    scenario("join without a member id in the version that wants one", topic(), beat(member="")),
    scenario(
        "describe consumer groups",
        topic(),
        joined(),
        describe("$", "$-absent", ""),
        describe_groups("$"),
        about="ConsumerGroupDescribe",
    ),
    scenario(
        "offsets of a member",
        topic(),
        joined(),
        commit({0: 5}, member="m", generation=EPOCH),
        commit({0: 6}, member="m", generation=50),
        commit({0: 6}, member="nobody", generation=EPOCH),
        commit({0: 6}),
        all_committed(member_id="m", member_epoch=EPOCH),
        all_committed(member_id="m", member_epoch=50),
        all_committed(member_id="nobody", member_epoch=EPOCH),
        all_committed(),
        delete_groups("$"),
        beat(epoch=LEAVING),
        all_committed(),
        delete_groups("$"),
        about="OffsetCommit 9 10",
    ),
    scenario(
        "join a consumer group in the classic way",
        topic(),
        joined(),
        on("second", join()),
        about="JoinGroup 0 9",
        differs=("classic members of a consumer group",),
    ),
)
