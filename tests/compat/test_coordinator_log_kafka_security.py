"""`coordinator_log=kafka` with a Kafka that speaks to nobody but known clients: TLS on both sides, and SASL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.testing.coordinator_log_tools import (
    SHARD,
    TIMEOUT_S,
    batch_of,
    numbered_batches,
    read_batches,
    same_content,
    started,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.certificates import self_signed
from tests.support.kafka_log import kafka_log, log_properties

USER, PASSWORD = "diskless", "open sesame"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
)


@pytest.fixture(scope="module")
def secured(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Properties of a log in such a Kafka. It and its clients have the same certificate."""
    folder = tmp_path_factory.mktemp("secured-kafka")
    certificate, key, store = (folder / name for name in ("certificate.pem", "key.pem", "store.pem"))
    contents = self_signed("127.0.0.1")
    certificate.write_bytes(contents[0])
    key.write_bytes(contents[1])
    store.write_bytes(contents[1] + contents[0])
    kafka = ApacheKafka(kafka_jars, folder)
    kafka.configure(
        {
            "listeners": f"SASL_SSL://{kafka.bootstrap},CONTROLLER://{kafka.controller}",
            "inter.broker.listener.name": "SASL_SSL",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificate),
            "listener.name.sasl_ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        }
    )
    try:
        kafka.start()
        yield log_properties(
            kafka.bootstrap,
            "secured_",
            security_protocol="SASL_SSL",
            ssl_ca_location=str(certificate),
            ssl_certificate_location=str(certificate),
            ssl_key_location=str(key),
            sasl_mechanism="PLAIN",
            sasl_username=USER,
            sasl_password=PASSWORD,
        )
    finally:
        kafka.end()


async def test_everything_that_the_log_does_goes_over_the_secured_listener(
    secured: dict[str, Any], tmp_path: Path
) -> None:
    batches = numbered_batches(20)
    async with started(kafka_log(secured, tmp_path, 1)) as one, started(kafka_log(secured, tmp_path, 2)) as two:
        async with asyncio.timeout(TIMEOUT_S), aclosing(one.leadership(SHARD)) as hints:
            async for hint in hints:
                if hint.node_id == 1:
                    break
        assert list(await one.append(SHARD, batches)) == list(range(20))
        assert same_content(await read_batches(two, SHARD, 0, 20), batches)
        await two.prune(SHARD, 5)
        assert (await one.bounds(SHARD)).start == 5
    async with started(kafka_log(secured, tmp_path, 1)) as again:
        await again.append(SHARD, [batch_of(b"more")])
        assert same_content(await read_batches(again, SHARD, 5, 16), [*batches[5:], batch_of(b"more")])


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.password": "guessed"},
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"},
        {"ssl.certificate.location": "", "ssl.key.location": ""},
    ],
    ids=lambda wrong: ",".join(wrong),
)
async def test_a_client_that_is_not_known_is_refused_and_no_secret_is_told(
    secured: dict[str, Any], tmp_path: Path, wrong: dict[str, str]
) -> None:
    log = kafka_log({**secured, "initialization.timeout.ms": 3_000, **wrong}, tmp_path)
    with pytest.raises(CoordinatorLogError) as raised:
        await log.start()
    assert "the Apache Kafka of the coordinator log" in str(raised.value)
    assert PASSWORD not in str(raised.value)
    assert "guessed" not in str(raised.value)
