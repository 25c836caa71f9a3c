"""Brokers in processes of their own that share a folder as their bucket, for the benchmarks of a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from diskless_core.shards import CLUSTER, DISKLESS, parse_shard, short_name
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.waiting import wait_until

BROKERS = 3
SHARDS = 2 * BROKERS
"""So many Diskless coordinators that each broker leads one, whoever leads the groups."""


_ALL_SHARDS = SHARDS + 2
"""With the cluster's and the one of the groups, which the benchmarks have in one place."""

_ASK_TIMEOUT_S = 5.0
_CLUSTER = short_name(CLUSTER.shard(0))
_COORDINATORS = f"{DISKLESS.name}-"


class BrokerCluster:
    """Brokers and six Diskless coordinators, as a context manager that ends every process.

    Args:
        settings: of all brokers, beside those that make them a cluster.
        settings_of_each: of single brokers, by node id.
    """

    def __init__(
        self,
        folder: Path,
        size: int = BROKERS,
        settings: Mapping[str, str] | None = None,
        settings_of_each: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self._folder = folder
        self._size = size
        self._settings = settings or {}
        self._settings_of_each = settings_of_each or {}
        self.brokers: dict[int, BrokerProcess] = {}

    def __enter__(self) -> BrokerCluster:
        for node_id in range(1, self._size + 1):
            self.broker(node_id)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def restart(self) -> None:
        """All brokers end and start again: their memory is empty."""
        with ThreadPoolExecutor(self._size) as pool:
            list(pool.map(BrokerProcess.stop, self.brokers.values()))
        self._start()

    def _start(self) -> None:
        with ThreadPoolExecutor(self._size) as pool:
            list(pool.map(BrokerProcess.start, self.brokers.values()))
        self.settle()

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.end()

    def broker(self, node_id: int) -> BrokerProcess:
        """One more, not started."""
        self.brokers[node_id] = BrokerProcess(
            self._folder / f"broker-{node_id}",
            {
                "node.id": str(node_id),
                **on_one_bucket(self._folder),
                "admin.listener": "http://127.0.0.1:0",
                "diskless.metadata.topic.num.partitions": str(SHARDS),
                "offsets.topic.num.partitions": "1",
                **self._settings,
                **self._settings_of_each.get(node_id, {}),
            },
        )
        return self.brokers[node_id]

    def remove(self, node_id: int) -> None:
        """It stops for good, cleanly."""
        self.brokers.pop(node_id).stop()

    @property
    def controller(self) -> int:
        """The broker that leads the cluster's own shard."""
        return self._led()[_CLUSTER]

    @property
    def worker(self) -> int:
        """A broker that leads a Diskless coordinator and is not the controller."""
        leaders = self._led()
        coordinators = (shard for shard in leaders.items() if shard[0].startswith(_COORDINATORS))
        return next(node_id for _, node_id in coordinators if node_id != leaders[_CLUSTER])

    def settle(self) -> None:
        """Wait until every shard has a leader and the shards are spread evenly over the brokers.

        Raises:
            AssertionError: that never comes to be.
        """
        wait_until(self._is_settled, "all shards are led, and spread over the brokers")

    def leaders(self) -> dict[str, int]:
        """By each shard's name the broker that leads it. A broker that does not answer leads nothing."""
        return {
            short_name(parse_shard(shard["shard"])): node_id
            for node_id, broker in self.brokers.items()
            for shard in _shards(broker)
            if shard["leading"]
        }

    def _led(self) -> dict[str, int]:
        """`leaders`, once all shards have one."""

        def of_all() -> dict[str, int] | None:
            leaders = self.leaders()
            return leaders if len(leaders) == _ALL_SHARDS else None

        return wait_until(of_all, "all shards are led")

    def _is_settled(self) -> bool:
        leaders = self.leaders()
        nominated = [node_id for shard, node_id in leaders.items() if shard != _CLUSTER]  # the log elects that one's
        counts = [nominated.count(node_id) for node_id in self.brokers]
        return len(leaders) == _ALL_SHARDS and max(counts) - min(counts) <= 1


def _shards(broker: BrokerProcess) -> Sequence[Any]:
    if not broker.is_running:
        return []
    try:
        with urlopen(f"{broker.admin}/coordinator/shards", timeout=_ASK_TIMEOUT_S) as answer:
            found: Sequence[Any] = json.load(answer)
            return found
    except (OSError, ValueError):
        return []
