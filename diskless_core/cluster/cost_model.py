"""The traffic of a cluster that is still to be built, from its size and from what was measured of brokers. Pure.

It is a cluster with racks for its clients and gateways for its producers, on the bucket log, at its full rate all day.
"""

from __future__ import annotations

from dataclasses import dataclass

from diskless_core.cluster.costs import Traffic

BATCH_IN_COMMIT_BYTES = 90.0
BATCH_IN_ENTRY_BYTES = 75.0
BATCH_IN_ANSWER_BYTES = 90.0
"""What brokers send each other for one batch, measured: its commit and the answer, in the entries that a coordinator's
followers get, and in the answer to the question where batches are."""

COMMIT_BYTES = 150.0
ENTRY_BYTES = 300.0
"""What they send besides for each request that commits, and for each entry to a follower."""

FOLLOWERS = 2
"""Of each coordinator, besides its leader (`cluster.nominations.FOLLOWERS`)."""

READS_OF_AN_OBJECT = 2.0
"""GETs of one object by one rack, measured: the first range as it is wanted, then the rest of 8 MiB or less."""

LOG_LINGER_S = 0.25
LOG_POLL_S = 15.0
"""Of the bucket log where requests are billed: between two puts of a shard, and between two looks at one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be built.

    Attributes:
        produce: bytes a second of all producers, as they are stored.
        fanout: how often each byte is consumed.
        commit_interval_s: `diskless.append.commit.interval.ms`.
        object_bytes: `diskless.append.buffer.max.bytes`.
        batch_bytes: of a producer's batch.
        network_commits: requests that commit one object, to brokers other than its own; see `gateway_plan`.
        clients_have_racks: whether clients say their racks. Else they use any broker.
    """

    brokers: int
    coordinators: int
    racks: int = 3
    produce: float
    fanout: float = 1.0
    commit_interval_s: float = 0.25
    object_bytes: int = 8 << 20
    batch_bytes: int = 16 << 10
    network_commits: int = 1
    clients_have_racks: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """What a plan comes to. `commit_requests` are those a second between brokers."""

    traffic: Traffic
    objects: float
    commit_requests: float


def modelled(plan: Plan, *, retention_s: float) -> Modelled:
    """The traffic of a plan."""
    elsewhere = (plan.racks - 1) / plan.racks
    consumed = plan.produce * plan.fanout
    objects = max(plan.brokers / plan.commit_interval_s, plan.produce / plan.object_bytes)
    batches = plan.produce / plan.batch_bytes
    commits = objects * plan.network_commits
    followers = min(FOLLOWERS, plan.brokers - 1)
    followed = min(1.0, (1 + FOLLOWERS) / plan.brokers)
    read_racks = plan.racks - 1 if plan.fanout else 0  # the writer's own rack has it in memory
    log_puts = plan.coordinators / LOG_LINGER_S
    log_looks = (plan.brokers + (1 + FOLLOWERS) * plan.coordinators) * 2 / LOG_POLL_S
    traffic = Traffic(
        produced=plan.produce,
        consumed=consumed,
        puts=objects + log_puts,
        gets=objects * READS_OF_AN_OBJECT * read_racks + log_puts + log_looks,
        clients_other_rack=0.0 if plan.clients_have_racks else (plan.produce + consumed) * elsewhere,
        brokers_other_rack={
            "commits": (batches * BATCH_IN_COMMIT_BYTES * (1 - 1 / plan.brokers) + commits * COMMIT_BYTES) * elsewhere,
            "entries": (batches * BATCH_IN_ENTRY_BYTES + commits * ENTRY_BYTES) * followers * elsewhere,
            "questions": batches * plan.fanout * BATCH_IN_ANSWER_BYTES * (1 - followed) * elsewhere,
        },
        stored_bytes=plan.produce * retention_s,
        brokers=plan.brokers,
    )
    return Modelled(traffic=traffic, objects=objects, commit_requests=commits)
