"""Where clients of a listener reach a broker."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """A broker as clients of one listener reach it."""

    node_id: int
    host: str
    port: int
