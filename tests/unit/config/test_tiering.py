"""The limits of tiered storage's settings."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from diskless_core.config.tiering import TieringConfig
from diskless_core.tiering.chunks import MAX_CHUNK_BYTES


def test_the_cache_of_segments_has_room_for_the_largest_chunk() -> None:
    TieringConfig(diskless_segment_cache_max_bytes=MAX_CHUNK_BYTES)
    with pytest.raises(ValidationError):
        TieringConfig(diskless_segment_cache_max_bytes=MAX_CHUNK_BYTES - 1)
