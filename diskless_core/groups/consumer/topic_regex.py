"""Regular expressions that choose topics by their names, in RE2's syntax: matched in linear time, by RE2 itself.

Apache Kafka takes the same syntax (KIP-848). RE2 is imported when the first expression arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

_CACHED = 256


class InvalidRegexError(ValueError):
    """A regular expression cannot be used; the message says why."""


def check(regex: str) -> None:
    """Refuse what is no regular expression.

    Raises:
        InvalidRegexError: see its message.
    """
    _matcher(regex)


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that a regular expression matches from end to end.

    Raises:
        InvalidRegexError: it is none.
    """
    return frozenset(filter(matcher(regex), names))


def matcher(regex: str) -> Callable[[str], bool]:
    """Says of a name whether a regular expression matches it from end to end.

    Raises:
        InvalidRegexError: it is none.
    """
    return _matcher(regex)


@lru_cache(_CACHED)
def _matcher(regex: str) -> Callable[[str], bool]:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(regex, options=options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegexError(f"{regex!r} is no valid regular expression: {text}") from error
    return lambda name: pattern.fullmatch(name) is not None
