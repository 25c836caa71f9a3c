"""What is done to the cluster, and to which of its brokers. Pure: decides from what is known, and does nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

FEWEST_BROKERS = 2
MOST_BROKERS = 12


class Act(Enum):
    """What is done, in the order in which it is. The value is what the summary calls it."""

    KILL = "kill -9 of the controller"
    PAUSE = "a leader stands still and wakes"
    ADD = "a broker more"
    REMOVE = "a broker is removed"
    STOP_RACK = "a rack is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The brokers as a victim is chosen.

    Attributes:
        racks: of the running brokers, by node id.
        leads: how many coordinators each leads; absent is none.
        controller: the broker that leads the cluster shard; None while nobody is known to.
    """

    racks: Mapping[int, str]
    leads: Mapping[int, int]
    controller: int | None


def problems(brokers: int, racks: int) -> list[str]:
    """Why there can be no such cluster; empty when there can."""
    found = []
    if not FEWEST_BROKERS <= brokers <= MOST_BROKERS:
        found.append(f"--brokers is {brokers}: it takes {FEWEST_BROKERS} to {MOST_BROKERS}")
    if not 1 <= racks <= brokers:
        found.append(f"--racks is {racks}: it takes 1 to --brokers, so that no rack is empty")
    return found


def rack_of(node_id: int, racks: int) -> str:
    """The rack of a broker; brokers are numbered from 1 on and go to the racks in turn."""
    return f"rack-{(node_id - 1) % racks + 1}"


def acts(racks: int) -> list[Act]:
    """What is done in a cluster of so many racks: where there is one only, losing it would leave nobody."""
    return [act for act in Act if act is not Act.STOP_RACK or racks > 1]


def victims(act: Act, stage: Stage, newcomer: int | None = None) -> Sequence[int]:
    """The brokers that something is done to; none for `Act.ADD`. At least one broker is always left.

    Args:
        newcomer: the broker that came last; it is not the one that is removed.
    """
    brokers = sorted(stage.racks)
    match act:
        case Act.KILL:
            return [_busiest([one for one in brokers if one == stage.controller] or brokers, stage)]
        case Act.PAUSE:
            return [_busiest([one for one in brokers if one != stage.controller] or brokers, stage)]
        case Act.REMOVE:
            crowd = Counter(stage.racks.values())
            others = [one for one in brokers if one != newcomer]
            return [max(others, key=lambda one: (crowd[stage.racks[one]], stage.leads.get(one, 0), -one))]
        case Act.STOP_RACK:
            loads = Counter[str]()
            for one in brokers:
                loads[stage.racks[one]] += stage.leads.get(one, 0)
            if len(set(stage.racks.values())) == 1:
                return []
            lost = max(sorted(set(stage.racks.values())), key=lambda rack: loads[rack])
            return [one for one in brokers if stage.racks[one] == lost]
        case Act.ADD:
            return []


def _busiest(brokers: Sequence[int], stage: Stage) -> int:
    return max(brokers, key=lambda one: (stage.leads.get(one, 0), -one))
