"""Regular expressions that choose topics by their names, in RE2's manner: matched in linear time.

pydantic's validators bring such an engine along. Look-around and back-references, which it has not, RE2 has not either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema

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
    return _matcher(regex).isinstance_python


@lru_cache(_CACHED)
def _matcher(regex: str) -> SchemaValidator:
    try:
        _validator(regex)  # by itself first: "a)(b" would pass in parentheses
        return _validator(rf"\A(?:{regex})\z")
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].strip()
        raise InvalidRegexError(f"{regex!r} is no valid regular expression: {reason}") from error


def _validator(regex: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=regex, regex_engine="rust-regex"))
