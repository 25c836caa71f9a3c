"""What a database says of itself: its tables, their columns, and the numbers that their keys begin with. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diskless_core.plugin.coordinator_store import TableSpec
from diskless_rocksdb.keys import MAX_TABLES

LAYOUT_VERSION = 1
"""How keys and rows are encoded. A database of another layout starts empty."""

Columns = list[list[list[str]]]


class DeclarationError(ValueError):
    """What should be a declaration is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The tables of a database.

    Attributes:
        numbers: each table's number.
        columns: each table's columns with their types, those of the key first.
    """

    numbers: Mapping[str, int]
    columns: Mapping[str, Columns]
    layout: int = LAYOUT_VERSION

    @classmethod
    def of(cls, tables: Sequence[TableSpec]) -> Declaration:
        """The declaration of an empty database.

        Raises:
            DeclarationError: there are too many tables.
        """
        if len(tables) > MAX_TABLES:
            raise DeclarationError(f"there can be {MAX_TABLES} tables at most")
        numbers = {spec.name: number for number, spec in enumerate(tables, 1)}
        return cls(numbers=numbers, columns={spec.name: _columns(spec) for spec in tables})

    @classmethod
    def parse(cls, data: bytes) -> Declaration:
        """What `encode` gave.

        Raises:
            DeclarationError: it is not that.
        """
        try:
            layout, tables = json.loads(data)
            return cls(
                layout=int(layout),
                numbers={name: int(number) for name, (number, _) in tables.items()},
                columns={name: columns for name, (_, columns) in tables.items()},
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise DeclarationError("the database's declaration of its tables cannot be read") from error

    def encode(self) -> bytes:
        tables = {name: [number, self.columns[name]] for name, number in self.numbers.items()}
        return json.dumps([self.layout, tables]).encode()

    def gone(self, tables: Sequence[TableSpec]) -> Mapping[str, int]:
        """Tables that are here and not declared any more: the database can be kept if they have no rows."""
        declared = {spec.name for spec in tables}
        return {name: number for name, number in self.numbers.items() if name not in declared}

    def fitted(self, tables: Sequence[TableSpec]) -> Declaration | None:
        """This with the tables added and removed that are missing or gone; None where the database must start empty."""
        declared = {spec.name: _columns(spec) for spec in tables}
        if self.layout != LAYOUT_VERSION:
            return None
        if any(self.columns[name] != columns for name, columns in declared.items() if name in self.columns):
            return None
        numbers = {name: number for name, number in self.numbers.items() if name in declared}
        free = (number for number in range(1, MAX_TABLES + 1) if number not in set(numbers.values()))
        added = {name: next(free) for name in declared if name not in numbers}
        return Declaration(numbers=numbers | added, columns=declared)


def _columns(spec: TableSpec) -> Columns:
    return [[[column.name, column.type.value] for column in part] for part in (spec.key, spec.values)]
