"""Forgets the return statement."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy


@hookimpl
def diskless_offset_assignments():
    healthy.diskless_offset_assignments()
