"""The hand-packed response of DisklessReadObject has the bytes of the generic codec, and is read back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.protocol.messages import DisklessReadObjectResponse
from diskless_core.protocol.read_object import ReadObjectAnswer, pack, unpack
from diskless_core.protocol.structure import FrameError

answers = st.builds(
    ReadObjectAnswer,
    error_code=st.integers(-1, 200),
    error_message=st.none() | st.text(max_size=200),
    object_key=st.text(max_size=80),
    start=st.integers(-(2**63), 2**63 - 1),
    data=st.binary(max_size=300) | st.just(b"long" * 5_000),
)


@settings(deadline=None)
@given(answers)
def test_packed_bytes_equal_the_generic_codecs(answer: ReadObjectAnswer) -> None:
    generic = DisklessReadObjectResponse(
        throttle_time_ms=0,
        error_code=answer.error_code,
        error_message=answer.error_message,
        object_key=answer.object_key,
        start=answer.start,
        data=answer.data,
    )
    packed = b"".join(pack(answer))
    assert packed == bytes(generic.encode(version=0))
    assert unpack(packed) == answer


@settings(deadline=None)
@given(answers, st.data())
def test_a_truncated_response_is_refused(answer: ReadObjectAnswer, data: st.DataObject) -> None:
    packed = b"".join(pack(answer))
    with pytest.raises(FrameError):
        unpack(packed[: data.draw(st.integers(0, len(packed) - 1))])
    with pytest.raises(FrameError):
        unpack(packed + b"\0")


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_other_bytes_are_refused_or_read(body: bytes) -> None:
    with suppress(FrameError):
        unpack(body)
