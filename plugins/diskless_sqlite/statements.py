"""The SQL of one declared table: how it is created, written and scanned. Only text; it opens nothing."""

from __future__ import annotations

from dataclasses import dataclass

from diskless_core.plugin.coordinator_store import TableSpec


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def create_table(spec: TableSpec) -> str:
    """A STRICT table without rowid: the rows are the primary key's index, so a put writes one b-tree and not two."""
    columns = [f"{quoted(column.name)} {column.type}" for column in spec.columns]
    key = ", ".join(quoted(column.name) for column in spec.key)
    return f"CREATE TABLE {quoted(spec.name)} ({', '.join(columns)}, PRIMARY KEY ({key})) STRICT, WITHOUT ROWID"


def drop_table(name: str) -> str:
    return f"DROP TABLE {quoted(name)}"


def any_row(name: str) -> str:
    """Whether a table has rows: one or none."""
    return " ".join(["SELECT 1 FROM", quoted(name), "LIMIT 1"])


@dataclass(frozen=True, slots=True)
class TableStatements:
    """Statements for one table. Parameters are positional, in the order of the table's columns."""

    spec: TableSpec

    @property
    def put(self) -> str:
        return " ".join(["INSERT OR REPLACE INTO", quoted(self.spec.name), "VALUES", _marks(len(self.spec.columns))])

    @property
    def delete(self) -> str:
        return " ".join(["DELETE FROM", quoted(self.spec.name), "WHERE", self._compared("=", len(self.spec.key))])

    @property
    def clear(self) -> str:
        return " ".join(["DELETE FROM", quoted(self.spec.name)])

    @property
    def get(self) -> str:
        return " ".join(["SELECT * FROM", quoted(self.spec.name), "WHERE", self._compared("=", len(self.spec.key))])

    def scan(self, start_columns: int, end_columns: int, *, limited: bool, reverse: bool) -> str:
        """Rows between two key prefixes of so many columns each (0: no bound), then the limit if there is one.

        A row value as long as the prefix compares just as a shorter tuple does in Python, on either end.
        """
        bounds = [
            self._compared(operator, count) for operator, count in ((">=", start_columns), ("<", end_columns)) if count
        ]
        direction = " DESC" if reverse else ""
        words = ["SELECT * FROM", quoted(self.spec.name)]
        if bounds:
            words += ["WHERE", " AND ".join(bounds)]
        words += ["ORDER BY", ", ".join(quoted(column.name) + direction for column in self.spec.key)]
        if limited:
            words.append("LIMIT ?")
        return " ".join(words)

    def _compared(self, operator: str, count: int) -> str:
        names = ", ".join(quoted(column.name) for column in self.spec.key[:count])
        return f"({names}) {operator} {_marks(count)}"


def _marks(count: int) -> str:
    return "(" + ", ".join("?" * count) + ")"
