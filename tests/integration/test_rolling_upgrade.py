"""Brokers of this build and of one whose feature level is one higher, on one log: a rolling upgrade."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from diskless_core.broker.parts import BrokerParts
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.state_machine import Command
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FEATURE, FeatureLevelError
from diskless_core.protocol.messages import ApiVersionsRequest
from tests.support.admin_requests import update_features_request
from tests.support.batches import batch_of, read_values
from tests.support.cluster import Cluster, in_thread, until
from tests.support.next_build import NEXT_LEVEL, NOTES, Note, next_build
from tests.support.requests import append, create_topic, fetch
from tests.support.wire import WireClient

LEVEL = BUILD_LEVELS.supported.newest
TOPIC = "t"


def parts(cluster: Cluster, node_id: int) -> BrokerParts:
    found = cluster.nodes[node_id]._parts
    assert found is not None
    return found


def lead_all(cluster: Cluster, node_id: int) -> None:
    """The log hints that a node leads every shard."""
    for shard in parts(cluster, node_id).coordinators.all():
        cluster.shared.set_leader(shard.id, node_id)


async def upgrade(cluster: Cluster, node_id: int) -> None:
    """Restart a broker with the next build, while another one leads all shards."""
    [other] = [peer for peer in cluster.nodes if peer != node_id]
    lead_all(cluster, other)
    await until(lambda: all(shard.leading for shard in parts(cluster, other).coordinators.all()))
    await cluster.stop(node_id)
    with next_build() as levels:
        await cluster.start(node_id, levels)


def take_note(text: str) -> Any:
    def operation(command: Command[Any]) -> None:
        command.emit(Note(text))

    return operation


def notes(cluster: Cluster, node_id: int) -> set[str]:
    return {text for (text,), _ in parts(cluster, node_id).cluster.shard.state.rows(NOTES)}


def described(wire: WireClient) -> tuple[tuple[int, int], int]:
    """What a broker says of the feature: what it supports, and the level in force."""
    answer = wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), 4)
    [supported] = [one for one in answer.supported_features if one.name == FEATURE]
    [finalized] = [one for one in answer.finalized_features if one.name == FEATURE]
    return (supported.min_version, supported.max_version), finalized.max_version_level


def raised(wire: WireClient, level: int) -> tuple[ErrorCode, str | None]:
    answer = wire.call(update_features_request((FEATURE, level)), 1)
    return ErrorCode(answer.error_code), answer.error_message


async def writes_and_reads(cluster: Cluster, values: list[bytes]) -> None:
    """A client appends a value by each broker, and reads by each all that were."""

    def client() -> None:
        for node_id in cluster.nodes:
            with cluster.connect(node_id) as wire:
                values.append(b"%d" % len(values))
                assert append(wire, TOPIC, batch_of(values[-1])) == [len(values) - 1]
        for node_id in cluster.nodes:
            with cluster.connect(node_id) as wire:
                read: list[bytes] = []
                while len(read) < len(values):
                    read += read_values(fetch(wire, TOPIC, len(read), max_wait_ms=500).records)
                assert read == values

    await in_thread(client)


async def test_brokers_are_upgraded_one_by_one_and_new_records_come_when_the_level_is_raised(tmp_path: Path):
    values: list[bytes] = []
    async with Cluster(tmp_path, {0: 1}) as cluster:

        def create() -> None:
            with cluster.connect(1) as wire:
                create_topic(wire, TOPIC, 1)
                assert described(wire) == ((LEVEL, LEVEL), LEVEL)

        await in_thread(create)
        await writes_and_reads(cluster, values)

        await upgrade(cluster, 2)
        await writes_and_reads(cluster, values)
        lead_all(cluster, 2)
        newer = parts(cluster, 2).cluster.shard
        await newer.until_leading()
        with pytest.raises(FeatureLevelError):
            await newer.submit(take_note("too early"))

        def raise_too_early() -> None:
            with cluster.connect(2) as two:
                code, message = raised(two, NEXT_LEVEL)
                assert code is ErrorCode.INVALID_UPDATE_VERSION
                assert f"Broker 1 only supports versions {LEVEL}-{LEVEL}" in (message or "")

        await in_thread(raise_too_early)
        await writes_and_reads(cluster, values)

        await upgrade(cluster, 1)
        lead_all(cluster, 1)
        await parts(cluster, 1).cluster.shard.until_leading()

        def raise_level() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                assert described(one) == ((LEVEL, NEXT_LEVEL), LEVEL)
                assert raised(two, NEXT_LEVEL) == (ErrorCode.NONE, None)  # by the controller
                assert raised(one, NEXT_LEVEL) == (ErrorCode.NONE, None)
                assert raised(one, NEXT_LEVEL) == (ErrorCode.NONE, None)
                code, message = raised(one, LEVEL)
                assert code is ErrorCode.INVALID_UPDATE_VERSION
                assert "never taken back" in (message or "")
                assert described(one) == ((LEVEL, NEXT_LEVEL), NEXT_LEVEL)

        await in_thread(raise_level)
        await parts(cluster, 1).cluster.shard.submit(take_note("in time"))
        await until(lambda: notes(cluster, 1) == notes(cluster, 2) == {"in time"})
        await until(
            lambda: all(
                shard.level == NEXT_LEVEL for node in (1, 2) for shard in parts(cluster, node).coordinators.all()
            )
        )
        await writes_and_reads(cluster, values)


async def test_a_broker_that_is_too_old_for_the_level_in_force_does_not_start_and_says_why(tmp_path: Path):
    with next_build() as levels:
        cluster = Cluster(tmp_path, {0: 1}, node_ids=(1,))
        await cluster.start(1, levels)
    try:
        assert parts(cluster, 1).cluster.shard.level == NEXT_LEVEL
        with pytest.raises(CoordinatorError, match=rf"diskless.version {NEXT_LEVEL}.*upgrade this broker"):
            await asyncio.wait_for(cluster.start(2), 60)
        assert parts(cluster, 1).cluster.shard.failure is None
    finally:
        await cluster.stop(1)
