"""Kafka's offset checkpoints."""

from __future__ import annotations

import pytest

from diskless_core.log.leader_epochs import CorruptCheckpointError
from diskless_core.log.offset_checkpoint import decode, encode


def test_offsets_are_written_as_kafka_does():
    assert encode({("t", 10): 7, ("a.b", 0): 2**40}) == b"0\n2\na.b 0 1099511627776\nt 10 7\n"


def test_offsets_come_back():
    offsets = {("t", 1): 5, ("t", 0): 0, ("__consumer_offsets", 49): 12}
    assert decode(encode(offsets)) == offsets
    assert decode(encode({})) == {}


def test_a_file_that_was_never_written_has_none():
    assert decode(b"") == {}


@pytest.mark.parametrize(
    "data", [b"1\n0\n", b"0\n2\nt 0 5\n", b"0\n1\nt 0 5\nt 0 5\n", b"0\n1\nt 5\n", b"0\nx\n", b"0\n", b"\xff\n0\n"]
)
def test_what_is_no_checkpoint_is_refused(data):
    with pytest.raises(CorruptCheckpointError):
        decode(data)
