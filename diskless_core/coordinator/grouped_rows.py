"""Rows of a resident table that are found in groups: those with all key columns but the last in common. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

_Key = tuple[Any, ...]

_NO_GROUP: Mapping[Any, Any] = {}


class GroupedRows(MutableMapping[_Key, Any]):
    """A dict of rows by their keys that keeps each group apart, so that a group costs what it has and not the table.

    It takes less memory than a dict, for the common columns of keys are there once.
    """

    __slots__ = ("_count", "_groups")

    def __init__(self) -> None:
        self._groups: dict[_Key, dict[Any, Any]] = {}
        self._count = 0

    def groups(self) -> list[_Key]:
        """The common columns of each group that has rows."""
        return list(self._groups)

    def group(self, common: _Key) -> Mapping[Any, Any]:
        """The rows of a group by their last key column, as they are: to be read at once."""
        return self._groups.get(common, _NO_GROUP)

    def get(self, key: _Key, default: Any = None) -> Any:
        group = self._groups.get(key[:-1])
        return default if group is None else group.get(key[-1], default)

    def __getitem__(self, key: _Key) -> Any:
        return self._groups[key[:-1]][key[-1]]

    def __setitem__(self, key: _Key, value: Any) -> None:
        common, last = key[:-1], key[-1]
        group = self._groups.get(common)
        if group is None:
            group = self._groups[common] = {}
        before = len(group)
        group[last] = value
        self._count += len(group) - before

    def __delitem__(self, key: _Key) -> None:
        common = key[:-1]
        group = self._groups[common]
        del group[key[-1]]
        self._count -= 1
        if not group:
            del self._groups[common]

    def __iter__(self) -> Iterator[_Key]:
        for common, group in self._groups.items():
            for last in group:
                yield (*common, last)

    def __len__(self) -> int:
        return self._count
