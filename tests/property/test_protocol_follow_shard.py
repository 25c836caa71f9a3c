"""The hand-packed response of DisklessFollowShard has the bytes of the generic codec."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from diskless_core.protocol.follow_shard import FollowShardAnswer, pack, pack_entry
from diskless_core.protocol.messages import DisklessFollowShardResponse

int64 = st.integers(-(2**63), 2**63 - 1)


class Entry(NamedTuple):
    offset: int
    next_offset: int
    digest: bytes
    data: bytes


entries = st.builds(
    Entry,
    offset=int64,
    next_offset=int64,
    digest=st.binary(max_size=16),
    data=st.binary(max_size=200) | st.just(b"long" * 5000),
)


@given(
    error_code=st.integers(-1, 200),
    message=st.none() | st.text(max_size=200),
    next_offset=int64,
    digest=st.binary(max_size=16),
    found=st.lists(entries, max_size=3) | st.just([Entry(1, 2, b"d", b"x")] * 200),
)
def test_packed_bytes_equal_the_generic_codecs(
    error_code: int, message: str | None, next_offset: int, digest: bytes, found: list[Entry]
) -> None:
    answer = FollowShardAnswer(
        error_code=error_code,
        error_message=message,
        next_offset=next_offset,
        digest=digest,
        entries=[pack_entry(*entry) for entry in found],
    )
    generic = DisklessFollowShardResponse(
        throttle_time_ms=0,
        error_code=error_code,
        error_message=message,
        next_offset=next_offset,
        digest=digest,
        entries=[DisklessFollowShardResponse.DisklessFollowedEntry(**entry._asdict()) for entry in found],
    )
    assert b"".join(pack(answer)) == bytes(generic.encode(version=0))
    decoded = DisklessFollowShardResponse.decode(b"".join(pack(answer)), version=0)
    assert [Entry(one.offset, one.next_offset, one.digest, one.data) for one in decoded.entries] == found
    assert all(type(one.data) is bytes for one in decoded.entries)
