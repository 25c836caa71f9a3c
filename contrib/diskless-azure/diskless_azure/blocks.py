"""Blocks: the parts of a blob that is not written in one request. Nobody sees them before they are committed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from itertools import count

from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import ObjectData

BLOCK_BYTES = 8 << 20
"""A blob has at most 50,000 blocks: this makes 390 GiB."""

BLOCKS_AT_ONCE = 4
"""Blocks of a blob that are on their way at once."""


def new_block_ids(clock: Clock) -> Iterator[str]:
    """Ids for the blocks of one upload, all of one length.

    No other upload has them: two that write the same blob at once must not mix their blocks.
    """
    upload = clock.new_uuid().hex
    return (f"{upload}-{number:05}" for number in count())


async def in_blocks(data: AsyncIterator[ObjectData], block_bytes: int) -> AsyncGenerator[bytes, None]:
    """The same bytes in blocks of equal size, the last one shorter; none where there are no bytes.

    What `data` yields may be used again when the next piece is asked for. It is closed where it can be.
    """
    block, filled = bytearray(), 0
    closing = data if isinstance(data, AsyncGenerator) else _closable(data)
    async with aclosing(closing) as pieces:
        async for piece in pieces:
            with memoryview(piece) as rest:
                taken = 0
                while taken < len(rest):
                    part = rest[taken : taken + block_bytes - filled]
                    block += part
                    taken, filled = taken + len(part), filled + len(part)
                    if filled == block_bytes:
                        full, block, filled = bytes(block), bytearray(), 0
                        yield full
    if block:
        yield bytes(block)


async def _closable(data: AsyncIterator[ObjectData]) -> AsyncGenerator[ObjectData, None]:
    async for piece in data:
        yield piece
