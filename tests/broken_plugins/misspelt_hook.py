"""Has its hook right, and another one in the singular."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy


@hookimpl
def diskless_offset_assignments():
    return healthy.diskless_offset_assignments()


@hookimpl
def diskless_coordinator_store():
    return []
