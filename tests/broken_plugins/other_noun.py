"""Returns the descriptor of an offset assignment from the hook for stores."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy


@hookimpl
def diskless_coordinator_stores():
    return healthy.diskless_offset_assignments()
