"""What docs/extending.md adds, tried in the copy of the project that `test_extending` makes."""

# ruff: noqa: I001  the copy has modules that the project has not

from __future__ import annotations

import asyncio
import struct
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.audit.shard import AuditShard
from diskless_core.audit.state_machine import AuditMachine
from diskless_core.broker.apis import CLIENT_APIS
from diskless_core.broker.coordinators import Coordinators, ShardSettings, shard_counts
from diskless_core.broker.dispatch import Api, ApiDispatcher
from diskless_core.broker.errors import StartError
from diskless_core.broker.handlers.api_versions import api_versions
from diskless_core.clock import SystemClock
from diskless_core.config.errors import ConfigError
from diskless_core.config.load import load_config
from diskless_core.coordinator.description import LogDescriber
from diskless_core.coordinator.shard import ShardServices
from diskless_core.diskless.operations import CommitRules
from diskless_core.metrics import Metrics
from diskless_core.plugin.price_list import PriceList
from diskless_core.plugin_host.contexts import contexts_in
from diskless_core.plugin_host.discovery import installed_entry_points
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import PRICE_LIST
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.feature_levels import LevelRange
from diskless_core.protocol.messages import (
    ApiVersionsRequest,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from diskless_core.shards import AUDIT, parse_shard
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import Sequential

# --- an API ----------------------------------------------------------------------------------------------------------


async def test_the_api_is_dispatched_with_its_typed_request_and_advertised() -> None:
    entry = CLIENT_APIS[GetTelemetrySubscriptionsRequest.API_KEY]
    client = uuid.UUID(int=7)
    request: Any = GetTelemetrySubscriptionsRequest(client_instance_id=client)
    request.API_VERSION = entry.newest
    request.with_header(correlation_id=7, client_id="app")
    frame: Any = SimpleNamespace(view=memoryview(bytes(request.encode(version=entry.newest, header=True))))
    services: Any = SimpleNamespace(metrics=Metrics(), clock=SimpleNamespace(monotonic=time.monotonic))
    connection: Any = None

    answer: Any = ApiDispatcher(services, CLIENT_APIS).dispatch(frame, connection)

    body = b"".join(await answer)[struct.calcsize(">iix") :]
    subscriptions = GetTelemetrySubscriptionsResponse.decode(body, version=entry.newest)
    assert (subscriptions.error_code, subscriptions.client_instance_id) == (ErrorCode.NONE, client)
    assert not subscriptions.requested_metrics
    services.cluster_shard = SimpleNamespace(level=1, supported_levels=LevelRange(1, 1))
    context: Any = SimpleNamespace(api_version=0, apis=CLIENT_APIS, services=services)
    listed: Any = api_versions(context, ApiVersionsRequest())
    assert (entry.key, 0, 0) in [(one.api_key, one.min_version, one.max_version) for one in listed.api_keys]
    assert isinstance(entry, Api)


# --- a noun ----------------------------------------------------------------------------------------------------------


def test_the_noun_has_a_default_can_be_configured_and_is_validated(tmp_path: Path) -> None:
    manager = PluginManager(installed_entry_points())
    assert load_config(None, [], {}, manager).plugins["price_list"].descriptor.name == "flat"
    with pytest.raises(ConfigError, match=r"did you mean price_list\.flat\.per\.request"):
        load_config(None, ["price_list.flat.per.requests=1"], {}, manager)

    chosen = load_config(None, ["price_list.flat.per.request=0.5"], {}, manager).plugins
    prices = manager.create(PRICE_LIST, chosen, contexts_in(tmp_path, SystemClock(), node_id=1))

    assert isinstance(prices, PriceList)
    assert prices.cost(puts=3, gets=1) == 2.0
    assert "price_list.flat" in [plugin.entry_point.key for plugin in manager.catalogue().loaded]


# --- a kind of shard -------------------------------------------------------------------------------------------------


class Broker:
    """One node's coordinators, on a log and a store that outlive it."""

    def __init__(self, shared: SharedLog, store: MemoryCoordinatorStore, *overrides: str) -> None:
        self.config = load_config(None, overrides, {}, PluginManager(installed_entry_points())).broker
        self.log = shared.node(1)
        services = ShardServices(node_id=1, clock=SystemClock(), log=self.log, store=store)
        rules = CommitRules(assignment=Sequential())
        self.coordinators = Coordinators(services, ShardSettings(counts=shard_counts(self.config), commit_rules=rules))

    async def __aenter__(self) -> Broker:
        await self.log.start()
        await asyncio.wait_for(self.coordinators.start(), 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.coordinators.stop()
        await self.log.stop()

    @property
    def audit(self) -> list[AuditShard]:
        return self.coordinators.of(AuditShard)


TWO = "diskless.audit.topic.num.partitions=2"


async def test_shards_of_the_kind_are_led_have_a_status_and_outlive_a_restart_and_the_loss_of_the_store() -> None:
    shared, store = SharedLog(), MemoryCoordinatorStore()
    async with Broker(shared, store, TWO) as broker:
        assert [str(shard.id) for shard in broker.audit] == ["__audit-0", "__audit-1"]
        assert [await broker.audit[1].note("alice") for _ in range(3)] == [1, 2, 3]
        rows = {status.shard: status.rows for status in await broker.coordinators.status(count=True)}
        assert rows["__audit-1"]["notes"] == 1
        assert rows["__audit-0"]["notes"] == 0
    for kept in (store, MemoryCoordinatorStore()):
        async with Broker(shared, kept, TWO) as broker:
            assert broker.audit[1].state.committed(AuditMachine.tables[0], ("alice",)) == 3


async def test_fewer_shards_of_the_kind_than_there_are_end_the_start() -> None:
    shared, store = SharedLog(), MemoryCoordinatorStore()
    async with Broker(shared, store, TWO):
        pass
    with pytest.raises(StartError, match=r"diskless\.audit\.topic\.num\.partitions is 1, but the log has 2 Audit"):
        async with Broker(shared, store):
            pass


def test_operators_place_shards_of_the_kind_by_name() -> None:
    manager = PluginManager(installed_entry_points())
    placed = load_config(None, [TWO, "diskless.coordinator.placement=audit-1:2"], {}, manager).broker

    assert [(one.shard, one.brokers) for one in placed.diskless_coordinator_placement] == [(AUDIT.shard(1), (2,))]
    assert parse_shard("audit-1") == parse_shard("__audit-1") == AUDIT.shard(1)
    with pytest.raises(ConfigError, match=r"there is no coordinator audit-2: diskless\.audit\.topic\.num\.partitions"):
        load_config(None, [TWO, "diskless.coordinator.placement=audit-2:2"], {}, manager)


async def test_the_log_of_the_kind_can_be_described() -> None:
    shared = SharedLog()
    described = []
    async with Broker(shared, MemoryCoordinatorStore()) as broker:
        await broker.audit[0].note("alice")
        describer = LogDescriber(from_start=True, keyed_records=AUDIT.keyed_records)
        end = (await broker.log.bounds(AUDIT.shard(0))).end
        async for batches in broker.log.read(AUDIT.shard(0), 0):
            described += [record for batch in batches for record in describer.describe(batch)]
            if batches[-1].next_offset >= end:
                break

    assert (described[-1].type, described[-1].data) == ("AuditNotedRecord", {"principal": "alice"})
