"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.orphan_detection import OrphanDetectionPlugin

from diskless_first_orphan_detection.detection import FirstOrphanDetectionDetection
from diskless_first_orphan_detection.settings import FirstOrphanDetectionSettings


@hookimpl
def diskless_orphan_detections() -> list[OrphanDetectionPlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        OrphanDetectionPlugin(
            name="first_orphan_detection",
            factory=FirstOrphanDetectionDetection,
            settings=FirstOrphanDetectionSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Lists the object store, with pauses, and names what is old enough.",
        )
    ]
