"""Stores that scan wrongly: order, bounds, prefixes, limits."""

from __future__ import annotations

from diskless_core.testing.fakes.store import MemoryShardStore
from tests.kit.store_backends import memory_fault


class _Ordering(MemoryShardStore):
    """Compares keys in a way of its own."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        rows = [
            row
            for key, row in self._table(table).rows.items()
            if self.order(start) <= self.order(key) and (end is None or self.order(key) < self.order(end))
        ]
        rows.sort(key=lambda row: self.order(row[: len(self._table(table).spec.key)]), reverse=reverse)
        return rows[:limit]

    def order(self, key):
        return tuple(map(self.of_a_value, key))

    def of_a_value(self, value):
        return value


class UnsignedIntegers(_Ordering):
    """Negative integers come after all others."""

    def of_a_value(self, value):
        return value % 2**64 if isinstance(value, int) else value


class Utf16Text(_Ordering):
    """Text is ordered as UTF-16, as in Java."""

    def of_a_value(self, value):
        return value.encode("utf-16-be", "surrogatepass") if isinstance(value, str) else value


class CaseInsensitiveText(_Ordering):
    """Capitals and small letters are ordered alike."""

    def of_a_value(self, value):
        return (value.lower(), value) if isinstance(value, str) else value


class SignedBytes(_Ordering):
    """Bytes are compared as signed characters."""

    def of_a_value(self, value):
        return tuple(byte ^ 0x80 for byte in value) if isinstance(value, bytes) else value


class ConcatenatedKeys(_Ordering):
    """The columns of a key are compared as one string without separators."""

    def order(self, key):
        parts = [f"{value + 2**63:020}" if isinstance(value, int) else value for value in key]
        return b"".join(part.encode() if isinstance(part, str) else part for part in parts)


class ScansAtMostAThousand(MemoryShardStore):
    """A scan without a limit ends after a thousand rows: the first page is taken for all."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        return super().scan(table, start, end, limit=1000 if limit is None else limit, reverse=reverse)


class EndIsIncluded(MemoryShardStore):
    """The end of a scan is a part of it."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        found = super().scan(table, start, end, reverse=reverse)
        at_end = self.get(table, end) if end and len(end) == len(self._table(table).spec.key) and start < end else None
        if at_end is not None:
            found = [at_end, *found] if reverse else [*found, at_end]
        return found[:limit]


class StartIsLeftOut(MemoryShardStore):
    """The start of a scan is no part of it."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        found = super().scan(table, start, end, reverse=reverse)
        return [row for row in found if row[: len(self._table(table).spec.key)] != start][:limit]


class EndPrefixIncludesItsRows(_Ordering):
    """A prefix as the end of a scan takes the rows along that have it."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        if end and len(end) < len(self._table(table).spec.key):
            rows = super().scan(table, start, reverse=reverse)
            return [row for row in rows if row[: len(end)] <= end][:limit]
        return super().scan(table, start, end, limit=limit, reverse=reverse)


class StartPrefixSkipsItsRows(MemoryShardStore):
    """A prefix as the start of a scan begins behind the rows that have it."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        found = super().scan(table, start, end, reverse=reverse)
        if 0 < len(start) < len(self._table(table).spec.key):
            found = [row for row in found if row[: len(start)] != start]
        return found[:limit]


class ReverseIsIgnored(MemoryShardStore):
    """A scan always goes forwards."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        return super().scan(table, start, end, limit=limit)


class LimitBeforeReverse(MemoryShardStore):
    """With `reverse`, the first rows are given backwards instead of the last ones."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        found = super().scan(table, start, end, limit=limit)
        return found[::-1] if reverse else found


class LimitZeroIsNone(MemoryShardStore):
    """A limit of 0 is taken for no limit."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        return super().scan(table, start, end, limit=limit or None, reverse=reverse)


class EmptyEndIsNone(MemoryShardStore):
    """An empty tuple as the end is taken for no end."""

    def scan(self, table, start=(), end=None, *, limit=None, reverse=False):
        return super().scan(table, start, end or None, limit=limit, reverse=reverse)


FAULTS = (
    memory_fault("negative-integers-come-last", UnsignedIntegers, "keys are ordered"),
    memory_fault("text-is-ordered-as-utf-16", Utf16Text, "keys are ordered"),
    memory_fault("text-is-ordered-without-case", CaseInsensitiveText, "keys are ordered"),
    memory_fault("bytes-are-signed", SignedBytes, "keys are ordered"),
    memory_fault("keys-are-concatenated", ConcatenatedKeys, "a composite key is ordered column by column"),
    memory_fault("a-scan-is-one-page", ScansAtMostAThousand, "a write of many rows works"),
    memory_fault("the-end-is-included", EndIsIncluded, "scan bounds compare as tuples do"),
    memory_fault("the-start-is-left-out", StartIsLeftOut, "scan bounds compare as tuples do"),
    memory_fault("an-end-prefix-includes-its-rows", EndPrefixIncludesItsRows, "scan bounds compare as tuples do"),
    memory_fault("a-start-prefix-skips-its-rows", StartPrefixSkipsItsRows, "scan bounds compare as tuples do"),
    memory_fault("reverse-is-ignored", ReverseIsIgnored, "with reverse the last ones backwards"),
    memory_fault("limit-before-reverse", LimitBeforeReverse, "with reverse the last ones backwards"),
    memory_fault("limit-zero-is-no-limit", LimitZeroIsNone, "limit gives the first rows"),
    memory_fault("an-empty-end-is-no-end", EmptyEndIsNone, "scan bounds compare as tuples do"),
)
