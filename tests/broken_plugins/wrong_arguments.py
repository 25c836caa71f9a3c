"""Its hook wants something that no hook gets."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl


@hookimpl
def diskless_offset_assignments(config):
    return []
