"""What values a setting takes: checks that refuse in Apache Kafka's words, and say for readers what they let through.

Pure. A check gets the text that a client sent; spaces around a number, a boolean or a list's element don't count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

MAX_VALUE_CHARS = 2**15 - 1
"""Of a value, whatever it says: as many as Kafka's requests have room for."""

_NUMBER = re.compile(r"\s*[+-]?\d{1,1000}\s*", re.ASCII)  # Python refuses to convert some thousand digits
_DECIMAL = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")
_ALL_REPLICAS = "*"


class InvalidTopicConfigError(ValueError):
    """A setting is unknown, or its value is not one that it takes. The message is meant for the client."""


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """Call it with a value.

    Attributes:
        run: raises InvalidTopicConfigError for a value that the setting does not take.
        valid_values: what it lets through, for readers; empty where the type says it all.
    """

    run: Callable[[str], None]
    valid_values: str = ""

    def __call__(self, value: str) -> None:
        self.run(value)


def number(lowest: int, highest: int, *, or_else: int | None = None) -> ValueCheck:
    """Whole numbers from `lowest` to `highest`, or `or_else`. Kafka's type is INT up to `MAX_INT`, else LONG."""
    kind, limit = ("INT", MAX_INT) if highest <= MAX_INT else ("LONG", MAX_LONG)

    def check(value: str) -> None:
        if not _NUMBER.fullmatch(value) or not -limit - 1 <= int(value) <= limit:
            raise InvalidTopicConfigError(f"Not a number of type {kind}")
        found = int(value)
        if or_else is not None and found != or_else and not lowest <= found <= highest:
            raise InvalidTopicConfigError(f"Value must be between {lowest} and {highest} or equal to {or_else}")
        if found != or_else and found < lowest:
            raise InvalidTopicConfigError(f"Value must be at least {lowest}")
        if found > highest:
            raise InvalidTopicConfigError(f"Value must be no more than {highest}")

    limits = f"≥ {lowest}" if highest == limit else f"{lowest} to {highest}"
    return ValueCheck(check, limits if or_else is None else f"{limits}, or {or_else}")


def decimal(lowest: float | None = None, highest: float | None = None) -> ValueCheck:
    """Kafka's type DOUBLE, within limits."""

    def check(value: str) -> None:
        if not _DECIMAL.fullmatch(value) or not isfinite(float(value)):
            raise InvalidTopicConfigError("Not a number of type DOUBLE")
        if lowest is not None and float(value) < lowest:
            raise InvalidTopicConfigError(f"Value must be at least {lowest:g}")
        if highest is not None and float(value) > highest:
            raise InvalidTopicConfigError(f"Value must be no more than {highest:g}")

    return ValueCheck(check, "" if lowest is None or highest is None else f"{lowest:g} to {highest:g}")


def one_of(*values: str) -> ValueCheck:
    """One of these, in this spelling."""

    def check(value: str) -> None:
        if value.strip() not in values:
            raise InvalidTopicConfigError(f"String must be one of: {', '.join(values)}")

    return ValueCheck(check, ", ".join(values))


def _check_boolean(value: str) -> None:
    if value.strip().lower() not in ("true", "false"):
        raise InvalidTopicConfigError("Expected value to be either true or false")


boolean = ValueCheck(_check_boolean, "true, false")


def _check_replicas(value: str) -> None:
    if value.strip() != _ALL_REPLICAS and not all(_REPLICA.fullmatch(one) for one in elements(value)):
        raise InvalidTopicConfigError(
            f"it must be the literal '{_ALL_REPLICAS}' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


replicas = ValueCheck(_check_replicas, "*, or a list of <partition>:<broker>")

anything = ValueCheck(lambda _: None)


def elements(value: str) -> Sequence[str]:
    """The elements of a list, as it is written."""
    return [element.strip() for element in value.split(",")] if value.strip() else []


def value_of_boolean(value: str) -> bool:
    """A boolean that has passed its check."""
    return value.strip().lower() == "true"


def double_as_text(value: float) -> str:
    """A number of type DOUBLE as Java writes it, and so Kafka shows it: 1.0E-4 where Python has 0.0001."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"
