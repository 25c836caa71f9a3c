"""Takes a broker of a cluster through a scenario as a client would: what a group asks goes to its coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka.protocol.metadata import FindCoordinatorRequest

from tests.differential.language import Ask, Scenario, resolve
from tests.differential.player import Address, Player, address_of
from tests.support.waiting import wait_until
from tests.support.wire import WireClient


class ClusterPlayer(Player):
    """One broker of a cluster in one scenario. Everything is sent to it, but for what belongs to a group.

    Args:
        bootstraps: of all brokers, this one first.
    """

    def __init__(self, bootstraps: Sequence[str], name: str, played: Scenario, version: int) -> None:
        super().__init__(bootstraps[0], name, played, version)
        self._brokers = [address_of(bootstrap) for bootstrap in bootstraps]
        self._coordinators: dict[str, Address] = {}

    def addresses_for(self, asked: Ask) -> Sequence[Address]:
        if asked.api == "FindCoordinator":
            return [self.address]
        if asked.api == "ListGroups":  # each tells of its own
            return self._brokers
        group = _group_of(resolve(dict(asked.fields), self.names))
        return [self.address if group is None else self._coordinator(group)]

    def _coordinator(self, group: str) -> Address:
        if group not in self._coordinators:
            with WireClient(*self.address) as wire:
                self._coordinators[group] = wait_until(lambda: coordinator_of(wire, group), f"a coordinator of {group}")
        return self._coordinators[group]


def coordinator_of(wire: WireClient, group: str) -> Address | None:
    """Where the broker at the other end says that a group's coordinator is; None as long as it knows of none."""
    [found] = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators
    return (found.host, found.port) if found.error_code == 0 else None


def _group_of(fields: dict[str, Any]) -> str | None:
    """The first group that a request is about; None when it is about none."""
    for name in ("group_id", "groups_names", "group_ids", "groups"):
        found = fields.get(name)
        if isinstance(found, list):
            found = found[0] if found else None
        if isinstance(found, dict):
            found = found["group_id"]
        if isinstance(found, str):
            return found
    return None
