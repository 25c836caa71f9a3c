"""What an Envelope says of the client whose request is in it: its principal and its address. (KIP-590, "Envelope".)

A principal is Apache Kafka's DefaultPrincipalData, with two bytes for its version before it.
"""

from __future__ import annotations

import ipaddress
import struct

from diskless_core.protocol.packed import MALFORMED, NO_TAGS, PackedError, PackedReader, pack_string

_VERSION = struct.Struct(">h")
_NEWEST = 0
_USER = "User"
_NOT_BY_TOKEN = b"\0"
_UNKNOWN_ADDRESS = bytes(4)


class PrincipalError(Exception):
    """The bytes are no principal that is known here."""


def pack_user(name: str) -> bytes:
    """The principal of a user."""
    return b"".join((_VERSION.pack(_NEWEST), pack_string(_USER), pack_string(name), _NOT_BY_TOKEN, NO_TAGS))


def unpack_user(data: bytes | None) -> str:
    """The user's name.

    Raises:
        PrincipalError: the bytes are malformed, of another version, or not of a user.
    """
    if data is None:
        raise PrincipalError("there is no principal")
    reader = PackedReader(data)
    try:
        [version] = reader.fixed(_VERSION)
        if version != _NEWEST:
            raise PackedError(f"it has the version {version}")
        kind, name = reader.string(), reader.string()
        reader.take(len(_NOT_BY_TOKEN))
        reader.tagged_section({})
        reader.expect_end()
    except MALFORMED as error:
        raise PrincipalError(f"the principal cannot be read: {error}") from error
    if kind != _USER:
        raise PrincipalError(f"a principal of the type {kind} is not known")
    return name


def pack_address(host: str) -> bytes:
    """An IP address as 4 or 16 bytes; 0.0.0.0 for a text that is none."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return _UNKNOWN_ADDRESS


def unpack_address(data: bytes) -> str:
    """The address as text.

    Raises:
        PrincipalError: it has neither 4 nor 16 bytes.
    """
    try:
        return str(ipaddress.ip_address(data))
    except ValueError as error:
        raise PrincipalError(f"an address of {len(data)} bytes") from error
