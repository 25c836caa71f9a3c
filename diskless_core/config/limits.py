"""Limits that one setting is to another."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo


def at_least(other_field: str, value: int, info: ValidationInfo) -> int:
    """The value.

    Raises:
        ValueError: it is less than that of another field.
    """
    other: Any = info.data.get(other_field)
    if other is not None and value < other:
        raise ValueError(f"it has to be at least {other_field.replace('_', '.')}, which is {other}")
    return value


def at_most(other_field: str, value: int, info: ValidationInfo) -> int:
    """The value.

    Raises:
        ValueError: it is more than that of another field.
    """
    other: Any = info.data.get(other_field)
    if other is not None and value > other:
        raise ValueError(f"it has to be at most {other_field.replace('_', '.')}, which is {other}")
    return value
