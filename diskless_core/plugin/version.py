"""The version of the author API. A plugin names the one that it was written for."""

from __future__ import annotations

API_VERSION = "1.0"
"""Major.minor. A plugin works when the major part is the same and its minor part is not above the broker's."""
