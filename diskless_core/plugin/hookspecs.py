"""The marks of hooks: `hookimpl` for a plugin's functions, `hookspec` for the one in the module of each noun.

Hooks are synchronous, take no argument and do no work: they return a list of frozen descriptors. The broker calls them
while it starts, for selected plugins only, or for all of them in `diskless plugins list`.
"""

from __future__ import annotations

import pluggy

PROJECT = "diskless"
"""The name under which pluggy marks functions as ours."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Decorator for the functions of a plugin's `plugin.py`. A name that is no hook is an error, not ignored."""
