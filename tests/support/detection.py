"""The orphan detection that comes with Diskless, ready to be asked."""

from __future__ import annotations

from pathlib import Path

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.orphan_detection import OrphanDetection
from diskless_policies.plugin import diskless_orphan_detections

UNUSED = Path("unused")


def listing_detection() -> OrphanDetection:
    """The default, as a broker makes it."""
    (descriptor,) = diskless_orphan_detections()
    context = PluginContext(node_id=1, data_dir=UNUSED, log_dir=UNUSED, clock=SystemClock())
    return descriptor.factory(context, descriptor.settings())
