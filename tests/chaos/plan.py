"""What is done to a cluster, and when: drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Role(Enum):
    """Whom a fault hits, found out when it begins."""

    LEADER = "the leader of a Diskless shard"
    GROUPS = "the leader of a groups shard"
    CONTROLLER = "the leader of the cluster shard"
    LENDER = "a broker that shares its rack"
    ANY = "any broker"
    ALL = "everybody"
    LOG = "the Apache Kafka that has the log"


class Fault(Enum):
    """Attributes: whom it may hit, how long it lasts in seconds, and how often it is drawn."""

    KILL = ("kill -9 and start again", (Role.LEADER, Role.GROUPS, Role.CONTROLLER, Role.ANY), (1, 20), 6)
    PAUSE = ("SIGSTOP and SIGCONT", (Role.LEADER, Role.GROUPS, Role.CONTROLLER, Role.ANY), (2, 30), 5)
    RESTART = ("a clean restart", (Role.LEADER, Role.GROUPS, Role.CONTROLLER, Role.ANY), (0, 3), 3)
    ROLL = ("a rolling restart of all", (Role.ALL,), (0, 0), 1)
    ADD = ("a broker more, removed again", (Role.ANY,), (20, 40), 2)
    BUCKET_AWAY = ("the bucket is away", (Role.ALL, Role.ANY), (30, 30), 2)
    BUCKET_UNAVAILABLE = ("the bucket answers 503", (Role.ALL, Role.ANY), (5, 20), 2)
    BUCKET_SLOW = ("the bucket is slow", (Role.ALL, Role.ANY), (30, 30), 2)
    BUCKET_RESETS = ("the bucket resets connections", (Role.ALL,), (10, 20), 2)
    BUCKET_ANSWERS_LOST = ("answers of the bucket are lost", (Role.ALL, Role.LEADER), (3, 10), 3)
    PEERS_CUT = ("cut from other brokers", (Role.LEADER, Role.GROUPS, Role.CONTROLLER, Role.ANY), (5, 25), 3)
    PEERS_HANG = ("other brokers hear nothing of it", (Role.LEADER, Role.CONTROLLER), (5, 25), 2)
    PEERS_SLOW = ("other brokers hear it late", (Role.LEADER, Role.CONTROLLER, Role.ANY), (5, 25), 2)
    OBJECTS_GARBLED = ("it lends others garbled objects", (Role.LENDER,), (10, 30), 3)
    CLIENTS_CUT = ("cut from clients", (Role.ANY,), (5, 20), 2)
    LOG_BROKER_KILLED = ("kill -9 of one node of the log's Kafka", (Role.LOG,), (5, 30), 8)
    LOG_BROKERS_KILLED = ("kill -9 of two nodes of the log's Kafka", (Role.LOG,), (5, 20), 4)
    LOG_CUT = ("cut from the log's Kafka", (Role.LEADER, Role.CONTROLLER, Role.ANY), (5, 25), 3)
    LOG_HANGS = ("the log's Kafka does not answer", (Role.LEADER, Role.CONTROLLER, Role.ANY), (5, 25), 3)
    CLOCK_OFF = ("restarted with a clock ten minutes off", (Role.ANY,), (20, 40), 1)
    DISK_FULL = ("the disk of its data folder is full", (Role.ANY,), (5, 20), 1)

    def __init__(self, text: str, roles: tuple[Role, ...], lasts_s: tuple[float, float], weight: int) -> None:
        self.text = text
        self.roles = roles
        self.lasts_s = lasts_s
        self.weight = weight


class Planned(NamedTuple):
    """A fault at its time, in seconds since the run began. `pick` (0 to 1) chooses among those of the role."""

    at_s: float
    fault: Fault
    role: Role
    pick: float
    lasts_s: float


QUIET_AT_START_S = 5.0
QUIET_BETWEEN_S = (1.0, 8.0)
QUIET_AT_END_S = 10.0
"""Nothing new is done in the last of a run's seconds, and all that goes on has ended by then."""


LONGEST_SHARE = 0.25
"""No fault lasts longer than this share of the whole run, so that a short one has several too."""

_OVERLAPPING_SHARE = 0.35


def plan(seed: int, seconds: float, faults: Sequence[Fault]) -> list[Planned]:
    """Faults for so many seconds, one after the other; some begin while another goes on."""
    source = random.Random(seed)
    planned: list[Planned] = []
    at_s = QUIET_AT_START_S
    while True:
        fault = source.choices(faults, [fault.weight for fault in faults])[0]
        lasts_s = min(source.uniform(*fault.lasts_s), seconds * LONGEST_SHARE)
        if at_s + lasts_s > seconds - QUIET_AT_END_S:
            return planned
        planned.append(Planned(at_s, fault, source.choice(fault.roles), source.random(), lasts_s))
        overlaps = source.random() < _OVERLAPPING_SHARE
        at_s += (lasts_s * source.random() if overlaps else lasts_s) + source.uniform(*QUIET_BETWEEN_S)
