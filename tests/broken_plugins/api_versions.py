"""One backend written for each of some versions of the plugin API."""

from __future__ import annotations

from dataclasses import replace

from diskless_core.plugin.hookspecs import hookimpl
from tests.broken_plugins import healthy

VERSIONS = {"older_major": "0.9", "newer_major": "2.0", "newer_minor": "1.1", "nonsense": "latest", "number": 1.0}


@hookimpl
def diskless_offset_assignments():
    (descriptor,) = healthy.diskless_offset_assignments()
    return [replace(descriptor, name=name, api_version=version) for name, version in VERSIONS.items()]
