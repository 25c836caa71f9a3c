"""What ends a broker's start."""

from __future__ import annotations


class StartError(Exception):
    """The broker cannot start; the message says what to do."""
