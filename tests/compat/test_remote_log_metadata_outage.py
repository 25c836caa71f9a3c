"""`remote_log_metadata=kafka` with a Kafka that asks for a password, goes away and comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError, RemoteLogMetadataServices
from diskless_core.remote_log.metadata import RemoteLogSegmentState
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.testing.remote_log_metadata_tools import (
    PARTITION,
    TIMEOUT_S,
    copies_found,
    copies_listed,
    segment,
    update,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.metadata_topic import node, topic_settings

PASSWORD = "open-sesame"
SERVICES = RemoteLogMetadataServices(cluster_id="ours", ledger=MemoryLedger())
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="kafka" password="{PASSWORD}" user_kafka="{PASSWORD}" user_diskless="{PASSWORD}";'
)


@pytest.fixture(scope="module")
def guarded_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A Kafka of the module's own, whose clients need a password."""
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": LOGIN,
        # that it is known to be gone soon after it was killed, and may come back
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
    }
    kafka = ApacheKafka(kafka_jars, tmp_path_factory.mktemp("guarded-kafka"), properties)
    try:
        yield kafka.start()
    finally:
        kafka.end()


def settings_of(kafka: ApacheKafka, **further: Any) -> Any:
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "diskless",
        "sasl_password": PASSWORD,
    }
    return topic_settings(kafka.bootstrap, "segments", **{**login, **further})


async def test_a_wrong_password_is_an_error_that_does_not_show_it(
    guarded_kafka: ApacheKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    wrong = "closed-sesame"
    metadata = node(settings_of(guarded_kafka, sasl_password=wrong), tmp_path / "node")
    with pytest.raises(RemoteLogMetadataError, match=f"{guarded_kafka.bootstrap}: .*Authentication failed") as error:
        await metadata.start(SERVICES)
    assert not error.value.retriable
    assert wrong not in f"{error.value}{caplog.text}"


async def test_while_kafka_is_away_segments_are_found_and_changes_fail_and_can_be_made_later(
    guarded_kafka: ApacheKafka, tmp_path: Path
) -> None:
    impatient = json.dumps({"delivery.timeout.ms": 1_000, "request.timeout.ms": 1_000})
    metadata = node(settings_of(guarded_kafka, producer_options=impatient), tmp_path / "node")
    await metadata.start(SERVICES)
    late = node(settings_of(guarded_kafka, initialization_attempt_timeout_ms=500), tmp_path / "late")
    try:
        begun, other = segment(1, 0, 9), segment(2, 10, 19)
        await metadata.add(begun)
        await metadata.update(update(begun, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
        await asyncio.to_thread(guarded_kafka.end)

        assert await copies_found(metadata, PARTITION, 0, [5]) == [1]
        with pytest.raises(RemoteLogMetadataError) as error:
            await metadata.add(other)
        assert error.value.retriable
        assert await copies_listed(metadata, PARTITION) == [1]
        await late.start(SERVICES)
        with pytest.raises(RemoteLogMetadataError, match=guarded_kafka.bootstrap) as error:
            await late.list(PARTITION)
        assert error.value.retriable

        guarded_kafka.start()  # on this thread: it ends with the one that started it
        await sooner_or_later(lambda: metadata.add(other))
        done = update(other, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        await metadata.update(done)
        assert await copies_found(metadata, PARTITION, 0, [5, 15]) == [1, 2]
        # to find that it is done already is to have read all that others wrote
        await sooner_or_later(lambda: late.update(done))
        assert await copies_found(late, PARTITION, 0, [5, 15]) == [1, 2]
    finally:
        await late.stop()
        await metadata.stop()


async def sooner_or_later(call: Callable[[], Awaitable[Any]]) -> None:
    """Make a call again as long as it says that this may help."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await call()
            except RemoteLogMetadataError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.1)
            else:
                return
