"""Clients of a Kafka that is not there leave nothing open, however long they try, and go where they are told to."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kafka.errors import KafkaError

from diskless_kafka.clients import open_admin


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


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


def fail_to_open(*, timeout_ms: int, **options: Any) -> None:
    with pytest.raises(KafkaError):
        open_admin({"bootstrap_timeout_ms": timeout_ms, "reconnect_backoff_ms": 1, **options})


@pytest.mark.parametrize("scheme", [None, "socks5", "socks5h", "http"])
def test_connections_that_are_refused_are_closed(nobody: str, scheme: str | None) -> None:
    before = open_descriptors()
    fail_to_open(timeout_ms=300, bootstrap_servers=[nobody], proxy_url=scheme and f"{scheme}://{nobody}")
    assert open_descriptors() == before


def test_connections_without_a_tls_handshake_are_closed() -> None:
    before = open_descriptors()
    with listening() as listener:
        fail_to_open(timeout_ms=1000, bootstrap_servers=[listener.address], security_protocol="SSL")
    assert open_descriptors() == before
    assert listener.heard


def test_connections_with_tls_are_used_and_closed(tmp_path: Path) -> None:
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for path, content in zip(files, self_signed("127.0.0.1"), strict=True):
        path.write_bytes(content)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*files)
    before = open_descriptors()
    with listening(tls) as listener:
        fail_to_open(
            timeout_ms=1000,
            bootstrap_servers=[listener.address],
            security_protocol="SSL",
            ssl_cafile=str(files[0]),
        )
    assert open_descriptors() == before
    assert listener.heard
    assert b"kafka-python" in listener.heard[0]


def self_signed(address: str) -> tuple[bytes, bytes]:
    """A certificate and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(
        datetime(2120, 1, 1, tzinfo=UTC)
    )
    certificate = builder.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    plain = serialization.NoEncryption()
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )


def test_connections_without_the_files_for_tls_are_closed(tmp_path: Path) -> None:
    before = open_descriptors()
    with listening() as listener, pytest.raises(FileNotFoundError):
        open_admin(
            {
                "bootstrap_servers": [listener.address],
                "security_protocol": "SSL",
                "ssl_cafile": str(tmp_path / "ca.pem"),
            }
        )
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("option", "scheme", "greeting"),
    [
        ("socks5_proxy", "socks5", b"\x05\x01\x00"),
        ("proxy_url", "socks5", b"\x05\x01\x00"),
        ("proxy_url", "socks5h", b"\x05\x01\x00"),
        ("proxy_url", "http", b"CONNECT 127.0.0.1:"),
    ],
)
def test_clients_go_to_their_proxy_and_close_what_it_ends(
    nobody: str, option: str, scheme: str, greeting: bytes
) -> None:
    before = open_descriptors()
    with listening() as proxy:
        fail_to_open(timeout_ms=1000, bootstrap_servers=[nobody], **{option: f"{scheme}://{proxy.address}"})
    assert open_descriptors() == before
    assert proxy.heard
    assert proxy.heard[0].startswith(greeting)
