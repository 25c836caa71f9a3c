"""What ends a broker's start."""

from __future__ import annotations


class StartError(Exception):
    """The broker cannot start; the message says what to do."""


class NodeIdRetiredError(StartError):
    """The cluster had given the broker its node id, and has retired it. Another start gets another one."""
