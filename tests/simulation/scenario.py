"""What a seed decides before anything happens: how big a world is, and which troubles it knows.

Each world has some of the troubles and none of the others, so that one does not hide what another would show.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from diskless_core.cluster.nominations import FOLLOWERS

WEEK_MS = 7 * 86_400_000
CLOCK_BEHIND_MS = WEEK_MS + 86_400_000
"""So far a clock is behind that is off: what is stamped by it looks old enough to be forgotten, whatever the limit."""


class LogKind(StrEnum):
    """Which log a world has: one that nominates whomever it likes, for every shard or for the cluster shard only, the
    bucket log, or that in a Kafka."""

    LENIENT = "lenient"
    LENIENT_CLUSTER = "lenient cluster"
    BUCKET = "bucket"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Times in seconds or milliseconds, as named; rates are 0 to 1, troubles are times between them in seconds, 0 for
    none. `members` is how many consumers share the first topic as a group; `compaction_interval_ms` makes all topics
    tiered where it is not 0; `come_and_go_every_s` is for brokers that join and leave. The clock of the first broker is
    set back by `clock_behind_ms` as long as the world is active; it is 0 in most worlds.
    """

    log: LogKind
    brokers: int
    shards: int
    partitions: int
    active_s: float
    linger_ms: int
    delete_delay_ms: int
    orphan_grace_ms: int
    retention_ms: int
    skew_ms: int
    answers_kept_ms: int
    idempotent_producers: int
    plain_producers: int
    deletes_records: bool
    deletes_topic: bool
    creates_topic: bool
    bucket_error_rate: float
    bucket_slow_rate: float
    bucket_outage_every_s: float
    log_error_rate: float
    log_slow_rate: float
    loss_rate: float
    slow_network_rate: float
    cut_every_s: float
    kill_every_s: float
    pause_every_s: float
    lag_every_s: float
    move_leader_every_s: float
    snapshot_every_s: float
    scan_every_s: float
    members: int
    compaction_interval_ms: int
    compact_every_s: float
    segment_bytes: int
    copy_grace_ms: int
    producer_expiration_ms: int
    garble_rate: float
    come_and_go_every_s: float
    clock_behind_ms: int

    @property
    def processes_end(self) -> bool:
        """Whether processes end, or seem to."""
        return bool(self.kill_every_s or self.pause_every_s or self.cut_every_s or self.come_and_go_every_s)

    @property
    def producers_expire(self) -> bool:
        """Whether producers that are kept from writing may be forgotten meanwhile."""
        return self.producer_expiration_ms < WEEK_MS

    @property
    def session_ms(self) -> int:
        """How long brokers may be silent: short only where they come and go, for heartbeats take time to simulate."""
        return 6_000 if self.processes_end else 30_000


def draw(seed: int, steps: float = 1.0) -> Scenario:
    """The scenario of a seed; `steps` makes the active time so many times as long."""
    source = random.Random(f"scenario {seed}")

    def maybe(*choices: float) -> float:
        return source.choice(choices) if source.random() < 0.4 else 0.0

    skew_ms = int(maybe(500, 2_000))
    log = random.Random(f"log {seed}").choice(list(LogKind))
    drawn = Scenario(
        log=log,
        brokers=random.Random(f"size {seed}").choice([0, 0, 2]) + source.choice([2, 3, 3]),
        shards=source.choice([1, 2, 3]),
        partitions=source.choice([2, 3]),
        active_s=source.uniform(5, 14) * steps,
        linger_ms=source.choice([0, 20, 250]),
        delete_delay_ms=source.choice([500, 3_000, 20_000]),
        orphan_grace_ms=2 * skew_ms + source.choice([1_500, 5_000, 20_000]),
        retention_ms=int(maybe(4_000, 8_000)) or -1,
        skew_ms=skew_ms,
        answers_kept_ms=source.choice([1_000, 20_000]),
        idempotent_producers=source.choice([1, 2]),
        plain_producers=source.choice([0, 1]),
        deletes_records=source.random() < 0.6,
        deletes_topic=source.random() < 0.4,
        creates_topic=source.random() < 0.3,
        bucket_error_rate=maybe(0.02, 0.1, 0.3),
        bucket_slow_rate=maybe(0.02, 0.2),
        bucket_outage_every_s=maybe(6, 15),
        log_error_rate=maybe(0.02, 0.1),
        log_slow_rate=maybe(0.05, 0.3),
        loss_rate=maybe(0.02, 0.15),
        slow_network_rate=maybe(0.05, 0.3),
        cut_every_s=maybe(5, 12),
        kill_every_s=maybe(3, 8, 15),
        pause_every_s=maybe(3, 8, 15),
        lag_every_s=maybe(3, 8),
        move_leader_every_s=maybe(1, 3, 10),
        snapshot_every_s=maybe(2, 6),
        scan_every_s=maybe(2, 6),
        members=int(maybe(1, 2, 3)),
        compaction_interval_ms=int(maybe(2_000, 4_000)),
        compact_every_s=maybe(3, 8),
        segment_bytes=source.choice([200, 1_000]),
        copy_grace_ms=source.choice([2_000, 60_000]),
        producer_expiration_ms=source.choice([1_000, 4_000, 30_000, WEEK_MS, WEEK_MS, WEEK_MS]),
        garble_rate=maybe(0.02, 0.2),
        come_and_go_every_s=maybe(3, 6),
        clock_behind_ms=0,
    )
    # A process that starts anew, or gets its copy from a snapshot, cannot know that a clock was off.
    all_live_on = not (drawn.kill_every_s or drawn.pause_every_s or drawn.come_and_go_every_s)
    all_follow = drawn.brokers <= 1 + FOLLOWERS
    if all_live_on and all_follow and not drawn.producers_expire and random.Random(f"clock {seed}").random() < 0.7:
        return replace(drawn, clock_behind_ms=CLOCK_BEHIND_MS)
    return drawn
