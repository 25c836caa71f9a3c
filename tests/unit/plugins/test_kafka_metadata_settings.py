"""Settings of `remote_log_metadata=kafka`: which are refused, what clients get, and that no secret is ever shown."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from diskless_core.plugin.config import secret_values
from diskless_kafka.config import RemoteLogMetadataSettings

SECRET = "open-sesame"


def made(**further: Any) -> RemoteLogMetadataSettings:
    return RemoteLogMetadataSettings(**{"bootstrap.servers": "one:9092, two:9092", **further})


def test_defaults_are_those_of_apache_kafka() -> None:
    settings = made()
    assert (settings.topic_name, settings.topic_num_partitions, settings.topic_replication_factor) == (
        "__remote_log_metadata",
        50,
        3,
    )
    assert settings.topic_configs() == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "min.insync.replicas": "2",
        "remote.storage.enable": "false",
    }
    assert settings.client_options() == {"bootstrap.servers": "one:9092,two:9092", "security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"bootstrap.servers": ""}, "bootstrap.servers"),
        ({"topic.num.partitions": 0}, "topic.num.partitions"),
        ({"topic.retention.ms": 0}, "topic.retention.ms"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"ssl.certificate.location": "client.pem"}, "ssl.key.location"),
        ({"producer.options": "[]"}, "JSON object"),
        ({"consumer.options": "{"}, "JSON object"),
        ({"no.such.setting": 1}, "no.such.setting"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named.replace(".", r"\.")):
        made(**wrong)


def test_options_of_a_kind_of_client_take_precedence() -> None:
    settings = made(
        **{
            "common.client.options": '{"socket.timeout.ms": 1, "retry.backoff.ms": 2}',
            "producer.options": '{"socket.timeout.ms": 3}',
        }
    )
    assert settings.client_options(settings.producer_options)["socket.timeout.ms"] == 3
    options = settings.client_options(settings.consumer_options)
    assert (options["socket.timeout.ms"], options["retry.backoff.ms"]) == (1, 2)


def test_no_secret_is_shown_by_the_settings_nor_by_a_client_that_logs_its_own() -> None:
    settings = made(
        **{
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "diskless",
            "sasl.password": SECRET,
            "ssl.certificate.location": "client.pem",
            "ssl.key.location": "key.pem",
            "ssl.key.password": SECRET,
            "common.client.options": f'{{"ssl.keystore.password": "{SECRET}"}}',
        }
    )
    options = settings.client_options()
    for shown in (repr(settings), str(settings), repr(options), f"{options}", str(ValueError(options))):
        assert SECRET not in shown
    for name in ("sasl.password", "ssl.key.password", "ssl.keystore.password"):
        assert options[name] == SECRET
        assert options[name].encode() == SECRET.encode()
    assert SECRET in secret_values(settings)
