"""Does work in its hook, and fails at it."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl


@hookimpl
def diskless_offset_assignments():
    raise ConnectionError("the licence server is down")
