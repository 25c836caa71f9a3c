"""Positions in a topic's log as a user writes them: `beginning`, `42`, `-10`, `-15m`, `2026-01-31T12:00:00Z`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

GRAMMAR = "beginning, end, an offset (42), the last records (-10), a time ago (-15m), or a time (2026-01-31T12:00:00Z)"
"""What a position can be, for help texts and errors."""

_BEGINNING = ("beginning", "earliest")
_END = ("end", "latest")
_DURATION = re.compile(r"p?(?:(\d+)d)?t?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.IGNORECASE)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


class PositionError(ValueError):
    """The text is not a position; the message says what is."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The log start offset."""


@dataclass(frozen=True, slots=True)
class End:
    """The offset after the last record that a consumer may read."""


@dataclass(frozen=True, slots=True)
class Offset:
    """An offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """`count` offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class Time:
    """The first record whose timestamp, in milliseconds since the epoch, is not below `time_ms`."""

    time_ms: int


Position: TypeAlias = Beginning | End | Offset | Last | Time


def parse_position(text: str, now_ms: int) -> Position:
    """The position that a text means; a time without a zone is in UTC, and `@` precedes milliseconds since the epoch.

    Raises:
        PositionError: it means none.
    """
    if text.lower() in _BEGINNING:
        return Beginning()
    if text.lower() in _END:
        return End()
    if text.isdecimal():
        return Offset(int(text))
    if text.startswith("-"):
        return Last(int(text[1:])) if text[1:].isdecimal() else Time(now_ms - _duration_ms(text[1:], text))
    if text.startswith("@") and text[1:].isdecimal():
        return Time(int(text[1:]))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise _no_position(text) from None
    in_utc = time if time.tzinfo else time.replace(tzinfo=UTC)
    return Time(round(in_utc.timestamp() * 1_000))


def at_offsets(position: Beginning | End | Offset | Last, earliest: int, latest: int) -> int:
    """The offset of a position that no broker has to be asked for, within `earliest` to `latest`."""
    match position:
        case Beginning():
            return earliest
        case End():
            return latest
        case Offset(offset):
            return min(max(offset, earliest), latest)
        case Last(count):
            return max(earliest, latest - count)


def _duration_ms(text: str, position: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise _no_position(position)
    return sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_MS, strict=True))


def _no_position(text: str) -> PositionError:
    return PositionError(f"{text!r} is not a position: give {GRAMMAR}")
