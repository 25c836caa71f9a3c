"""OffsetCommit and OffsetFetch."""

from __future__ import annotations

from tests.differential.group_words import all_committed, commit, committed, leave, member, second_member
from tests.differential.language import NO_ID, UNKNOWN_ID, The, ask, scenario
from tests.differential.words import at, delete_topics, gone, topic, until

M = The("m")

SCENARIOS = (
    scenario(
        "a simple consumer commits",
        topic(partitions=3),
        commit({0: 5, 1: 0}),
        committed(0, 1, 2),
        commit({0: 3}, metadata="", epoch=4),
        commit({1: 7}, metadata=None),
        committed(0, 1, 2),
        about="OffsetCommit",
    ),
    scenario(
        "offsets that were committed are fetched",
        topic(partitions=3),
        commit({0: 5, 1: 0}, epoch=2),
        committed(0, 1, 2, 77),
        committed(),
        committed(0, topic="$-absent", topic_id=UNKNOWN_ID),
        committed(0, group="$-absent"),
        committed(0, group=""),
        about="OffsetFetch",
    ),
    scenario(
        "all offsets of a group are fetched",
        topic(partitions=3),
        commit({0: 5, 1: 0}),
        all_committed(),
        all_committed("$-absent"),
        about="OffsetFetch 2+",
    ),
    scenario(
        "offsets of several groups are fetched",
        topic(),
        commit({0: 5}),
        commit({0: 6}, group="$-b"),
        ask(
            "OffsetFetch",
            groups=[
                {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
                for group in ("$", "$-b", "$-absent")
            ],
            require_stable=True,
        ),
        ask("OffsetFetch", groups=[], require_stable=True),
        about="OffsetFetch 8+",
    ),
    scenario(
        "commit for what is not there",
        topic(),
        commit({0: 5, 1: 5, -1: 5}),
        commit({0: 5}, topic="$-absent", topic_id=UNKNOWN_ID),
        commit({0: 5}, topic="", topic_id=NO_ID),
        commit({}),
        commit({}, topics=[]),
        all_committed(),
        about="OffsetCommit",
    ),
    scenario(
        "commit odd offsets and metadata",
        topic(),
        commit({0: -1}),
        commit({0: -5}),
        commit({0: 2**63 - 1}),
        commit({0: 1}, metadata="x" * 4096),
        commit({0: 2}, metadata="x" * 4097),
        committed(0),
        about="OffsetCommit ends",
    ),
    scenario(
        "a member commits",
        topic(),
        member(),
        commit({0: 5}, member=M, generation=1),
        commit({0: 6}, member=M, generation=2),
        commit({0: 6}, member=M, generation=0),
        commit({0: 6}, member=M),
        commit({0: 6}, member="nobody", generation=1),
        commit({0: 6}, member="nobody"),
        commit({0: 6}),
        commit({0: 6}, generation=1),
        commit({0: 6}, member=M, generation=1, group="$-absent"),
        commit({0: 6}, generation=3, group="$-absent"),
        commit({0: 6}, member="nobody", group="$-absent"),
        commit({0: 6}, group=""),
        committed(0),
        leave(M),
        commit({0: 7}, member=M, generation=1),
        commit({0: 8}),
        committed(0),
        about="OffsetCommit",
    ),
    scenario(
        "a member commits while the group rebalances",
        topic(),
        member(),
        second_member(),
        commit({0: 5}, member=M, generation=1),
        committed(0),
        about="OffsetCommit ends",
    ),
    scenario(
        "offsets of a deleted topic",
        topic(),
        topic("$-b", save="b"),
        commit({0: 5}),
        commit({0: 6}, topic="$-b", topic_id=The("b")),
        delete_topics("$-b"),
        gone("$-b"),
        committed(0),
        until(at(1, committed(0, topic="$-b")), {"topics.0.partitions.0.committed_offset": -1}, shown=True),
        committed(0, topic="$-b", topic_id=The("b")),
        about="OffsetFetch 1 9 10",
    ),
    scenario(
        "fetch offsets with a member's id",
        topic(),
        member(),
        committed(0, member_id=M, member_epoch=1),
        committed(0, member_id=M, member_epoch=7),
        committed(0, member_id="nobody", member_epoch=1),
        committed(0, group="$-absent", member_id="nobody", member_epoch=1),
        about="OffsetFetch 9+",
    ),
    scenario(
        "commit a topic and a partition twice in a request",
        topic(),
        ask(
            "OffsetCommit",
            group_id="$",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[
                {
                    "name": "$",
                    "topic_id": The("id"),
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": None,
                        }
                    ],
                }
                for offset in (3, 4)
            ],
        ),
        committed(0),
        about="OffsetCommit 9 10",
    ),
)
