"""Who a client is, as one broker tells another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.protocol.envelope import PrincipalError, pack_address, pack_user, unpack_address, unpack_user
from diskless_core.protocol.messages import EnvelopeRequest, EnvelopeResponse


@given(st.text(max_size=300))
def test_a_user_arrives_as_it_was_sent(name: str) -> None:
    assert unpack_user(pack_user(name)) == name


def test_a_user_has_the_bytes_of_kafkas_default_principal_data() -> None:
    assert pack_user("alice") == b"\0\0" + b"\x05User" + b"\x06alice" + b"\0" + b"\0"


@given(st.binary(max_size=40))
def test_bytes_that_are_no_principal_are_refused_and_not_misread(data: bytes) -> None:
    try:
        name = unpack_user(data)
    except PrincipalError:
        return
    assert unpack_user(pack_user(name)) == name


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        pack_user("alice")[:-1],
        pack_user("alice") + b"\0",
        b"\0\1" + pack_user("alice")[2:],
        pack_user("alice").replace(b"User", b"Host"),
    ],
)
def test_what_is_not_a_user_is_refused(data: bytes | None) -> None:
    with pytest.raises(PrincipalError):
        unpack_user(data)


@pytest.mark.parametrize(
    ("host", "told"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("fe80::1%eth0", "fe80::1"), ("?", "0.0.0.0"), ("", "0.0.0.0")],
)
def test_an_address_arrives_if_it_is_one(host: str, told: str) -> None:
    assert unpack_address(pack_address(host)) == told


def test_an_address_of_a_strange_size_is_refused() -> None:
    with pytest.raises(PrincipalError):
        unpack_address(b"abc")


def test_an_envelope_is_that_of_kafka_where_nothing_of_ours_is_said() -> None:
    request = EnvelopeRequest(request_data=b"ab", request_principal=b"p", client_host_address=bytes(4))
    assert bytes(request.encode(version=0)) == b"\x03ab" + b"\x02p" + b"\x05\0\0\0\0" + b"\0"
    assert bytes(EnvelopeResponse(response_data=b"ab", error_code=0).encode(version=0)) == b"\x03ab" + b"\0\0" + b"\0"
