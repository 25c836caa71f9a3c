"""Clients of a Kafka that is not there, or that refuses, say why, and leave nothing open; what they log is ours."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from diskless_core.plugin.kafka_client import (
    KafkaClientError,
    close_producer,
    failure,
    open_admin,
    open_consumer,
    open_producer,
)
from tests.support.certificates import self_signed
from tests.support.waiting import wait_until

SECRET = "open-sesame"
TIMEOUT_S = 60
LOG = "diskless_core.plugin.kafka_client"


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def client_threads() -> set[str]:
    """librdkafka names its threads. Others of this process come and go as they like."""
    found = set()
    for path in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if (path / "comm").read_text().startswith("rdk:"):
                found.add(path.name)
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    descriptors, before = open_descriptors(), client_threads()
    yield
    assert open_descriptors() == descriptors
    wait_until(lambda: client_threads() <= before, "no client has a thread")  # a joined one is listed a moment longer


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


class Listener:
    """Hears what each connection says first, and ends it.

    Attributes:
        heard: that, in the order of the connections.
    """

    def __init__(self, server: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.address = f"127.0.0.1:{server.getsockname()[1]}"
        self.heard: list[bytes] = []
        self._server = server
        self._tls = tls

    def listen(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            connection.settimeout(10)
            with connection, suppress(OSError):  # its client may give up at any time
                if self._tls is None:
                    self.heard.append(connection.recv(1000))
                else:
                    with self._tls.wrap_socket(connection, server_side=True) as encrypted:
                        self.heard.append(encrypted.recv(1000))


@contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Iterator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = Listener(server, tls)
        thread = threading.Thread(target=listener.listen)
        thread.start()
        try:
            yield listener
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def fail_to_open(address: str, until: Callable[[], bool] = lambda: False, **options: Any) -> KafkaClientError:
    """Open a client that finds no Kafka, and close it as soon as something holds."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    closing = SimpleNamespace(is_set=until)
    with pytest.raises(KafkaClientError) as error:
        open_admin({"bootstrap.servers": address, "reconnect.backoff.ms": 1, **named}, TIMEOUT_S, closing)
    return error.value


def test_a_broker_that_is_away_may_come_back(nobody: str, caplog: pytest.LogCaptureFixture) -> None:
    error = fail_to_open(nobody, until=lambda: "Connection refused" in caplog.text)
    assert error.retriable
    assert f"no broker was reached within 60 s: {nobody}/bootstrap: Connect to" in str(error)
    assert "Connection refused" in str(error)


def test_a_name_that_nobody_has_may_be_known_later(caplog: pytest.LogCaptureFixture) -> None:
    error = fail_to_open("no-such-host.invalid:9092", until=lambda: "Failed to resolve" in caplog.text)
    assert error.retriable
    assert "no-such-host.invalid:9092" in str(error)


def test_nobody_is_waited_for_longer_than_allowed(nobody: str) -> None:
    with pytest.raises(KafkaClientError, match=r"no broker was reached within 0\.2 s") as error:
        open_admin({"bootstrap.servers": nobody}, 0.2)
    assert error.value.retriable


def test_a_broker_that_breaks_a_tls_handshake_off_may_be_starting(caplog: pytest.LogCaptureFixture) -> None:
    with listening() as listener:
        error = fail_to_open(
            listener.address, until=lambda: "SSL handshake failed" in caplog.text, security_protocol="SSL"
        )
    assert error.retriable
    # The last of several tries is told, and whether a try counts as reset or as a failed handshake is a race.
    assert re.search("SSL handshake failed|in state SSL_HANDSHAKE", str(error))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """The PEM file of a server for 127.0.0.1, and what that server needs."""
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for path, content in zip(files, self_signed("127.0.0.1"), strict=True):
        path.write_bytes(content)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*files)
    return files[0], tls


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(certificate: tuple[Path, ssl.SSLContext]) -> None:
    with listening(certificate[1]) as listener:
        error = fail_to_open(listener.address, security_protocol="SSL")
    assert not error.retriable
    assert "certificate" in str(error)


def test_a_known_certificate_is_accepted(certificate: tuple[Path, ssl.SSLContext]) -> None:
    with listening(certificate[1]) as listener:
        error = fail_to_open(
            listener.address,
            until=lambda: bool(listener.heard),
            security_protocol="SSL",
            ssl_ca_location=str(certificate[0]),
        )
    assert error.retriable
    assert b"rdkafka" in listener.heard[0]


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(FileNotFoundError, match=missing):
        open_consumer({"bootstrap.servers": "localhost:9092", "security.protocol": "SSL", name: missing})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("no.such.option", SECRET, "no.such.option"),
        ("socket.timeout.ms", SECRET, "socket.timeout.ms"),
        ("stats_cb", SECRET, "callable"),
        ("ssl.key.pem", SECRET, "ssl.key.pem"),
    ],
)
@pytest.mark.parametrize("opened", [open_producer, open_consumer])
def test_a_wrong_option_is_named_without_its_value(name: str, value: str, said: str, opened: Any) -> None:
    with pytest.raises(KafkaClientError, match=said) as error:
        opened({"bootstrap.servers": "localhost:9092", "security.protocol": "SSL", name: value})
    assert not error.value.retriable
    assert SECRET not in str(error.value)


def test_a_producer_without_a_broker_is_closed_in_time_and_says_that_its_records_are_not_written(nobody: str) -> None:
    producer = open_producer({"bootstrap.servers": nobody})
    outcomes: list[KafkaError] = []
    producer.produce("topic", b"value", partition=0, on_delivery=lambda error, _: outcomes.append(error))
    close_producer(producer, 0)
    assert len(outcomes) == 1
    assert failure(outcomes[0]).retriable


def test_what_clients_log_goes_to_the_log_once_and_not_to_standard_error(
    nobody: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, LOG)
    consumer = open_consumer({"bootstrap.servers": nobody, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10})
    consumer.assign([TopicPartition("topic", 0, 0)])

    def refused() -> list[int]:
        return [record.levelno for record in caplog.records if "Connection refused" in record.getMessage()]

    while len(refused()) < 3:
        assert consumer.poll(0.1) is None
    consumer.close()
    assert refused()[0] == logging.WARNING
    assert set(refused()[1:]) == {logging.DEBUG}
    assert capfd.readouterr().err == ""


def test_a_refusal_without_the_brokers_words_says_what_its_code_means() -> None:
    for told in ("", "Failed to create topic: "):
        error = failure(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, told))
        assert str(error) == "Broker: Topic authorization failed"
    assert str(failure(KafkaError(KafkaError.POLICY_VIOLATION, "no topics today"))) == "no topics today"


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (KafkaError._TRANSPORT, True),
        (KafkaError._MSG_TIMED_OUT, True),
        (KafkaError._PURGE_QUEUE, True),
        (KafkaError._AUTHENTICATION, False),
        (KafkaError._INVALID_ARG, False),
        (KafkaError.NOT_ENOUGH_REPLICAS, True),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.INVALID_REPLICATION_FACTOR, False),
        (9999, False),
    ],
)
def test_errors_say_whether_trying_again_may_help(code: int, retriable: bool) -> None:
    error = failure(KafkaError(code))
    assert (error.code, error.retriable, error.is_fatal) == (code, retriable, False)
