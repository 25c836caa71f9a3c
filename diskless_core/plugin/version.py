"""The version of the author API. A plugin names the one that it was written for."""

from __future__ import annotations

import re

API_VERSION = "1.0"
"""Major.minor. A plugin works when the major part is the same and its minor part is not above the broker's."""

_MAJOR_MINOR = re.compile(r"(\d+)\.(\d+)")


def incompatibility(wanted: str, offered: str = API_VERSION) -> str | None:
    """Why a plugin written for the API version `wanted` can't run on `offered`, or None if it can."""
    wanted_match, offered_match = _MAJOR_MINOR.fullmatch(wanted), _MAJOR_MINOR.fullmatch(offered)
    if wanted_match is None or offered_match is None:
        return f"its api_version is {wanted!r}, which is not of the form <major>.<minor>, such as {offered!r}"
    wanted_major, wanted_minor = map(int, wanted_match.groups())
    offered_major, offered_minor = map(int, offered_match.groups())
    if wanted_major != offered_major:
        return f"it was written for plugin API {wanted}, this broker offers {offered}: the major versions differ"
    if wanted_minor > offered_minor:
        return f"it needs plugin API {wanted} or newer, this broker offers {offered}: upgrade the broker"
    return None
