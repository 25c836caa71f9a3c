"""Stores that lose, change or mix up rows."""

from __future__ import annotations

import threading

from diskless_core.plugin.coordinator_store import CoordinatorStoreError, TableChanges
from diskless_core.testing.fakes.store import MemoryCoordinatorStore, MemoryShardStore, _MemoryShard
from tests.kit.fault import Correct
from tests.kit.store_backends import NOUN, FileStore, file_suite, memory_fault, memory_suite


class _Changing(MemoryShardStore):
    """Changes each value on its way into the store."""

    def write(self, changes, applied_offset):
        changed = {
            name: TableChanges(
                put=[tuple(map(self.changed, row)) for row in change.put],
                delete=[tuple(map(self.changed, key)) for key in change.delete],
            )
            for name, change in changes.items()
        }
        super().write(changed, applied_offset)

    def get(self, table, key):
        return super().get(table, tuple(map(self.changed, key)))

    def changed(self, value):
        return value


class LargeIntegersLosePrecision(_Changing):
    """Integers go through a floating point number, as in JSON."""

    def changed(self, value):
        return int(float(value)) if isinstance(value, int) and abs(value) < 2**62 else value


class EmptyTextIsNone(_Changing):
    """An empty text comes back as None."""

    def write(self, changes, applied_offset):
        super().write(changes, applied_offset)
        for name in changes:
            table = self._table(name)
            width = len(table.spec.key)
            for key, row in table.rows.items():
                table.rows[key] = row[:width] + tuple(None if value == "" else value for value in row[width:])


class EmptyBytesAreNone(_Changing):
    """Empty bytes come back as None."""

    def write(self, changes, applied_offset):
        super().write(changes, applied_offset)
        for name in changes:
            table = self._table(name)
            width = len(table.spec.key)
            for key, row in table.rows.items():
                table.rows[key] = row[:width] + tuple(None if value == b"" else value for value in row[width:])


class TextEndsAtNul(_Changing):
    """A text is cut at its first NUL, as a C string is."""

    def changed(self, value):
        return value.split("\0")[0] if isinstance(value, str) and "\0" in value[1:] else value


class TextIsNormalized(_Changing):
    """A text loses what is not Latin-1."""

    def changed(self, value):
        return value.encode("latin-1", "replace").decode("latin-1") if isinstance(value, str) else value


class LongKeysAreCut(_Changing):
    """Of a long text or long bytes only the first kilobyte is kept."""

    def changed(self, value):
        return value[:1024] if isinstance(value, str | bytes) and len(value) < 100_000 else value


class LargeValuesAreCut(_Changing):
    """Values are cut at 64 KiB."""

    def changed(self, value):
        return value[: 1 << 16] if isinstance(value, str | bytes) else value


class RowsAreLists(MemoryShardStore):
    """Rows come back as lists."""

    def get(self, table, key):
        found = super().get(table, key)
        return None if found is None else list(found)


class NoneKeepsTheOldValue(MemoryShardStore):
    """A put that has None in a column leaves the value that was there."""

    def write(self, changes, applied_offset):
        for name, change in changes.items():
            rows = self._table(name).rows
            width = len(self._table(name).spec.key)
            change.put[:] = [
                tuple(old if new is None else new for new, old in zip(row, rows.get(row[:width], row), strict=True))
                for row in change.put
            ]
        super().write(changes, applied_offset)


class DeletesByPrefix(MemoryShardStore):
    """A delete removes every row that has the first column of the key."""

    def write(self, changes, applied_offset):
        for name, change in changes.items():
            table = self._table(name)
            for key in change.delete:
                for found in [one for one in table.rows if one[:1] == key[:1]]:
                    table.delete(found)
        super().write(changes, applied_offset)


class DeletesNothingThatIsPutLater(MemoryShardStore):
    """A write that has puts and deletes forgets the deletes."""

    def write(self, changes, applied_offset):
        if any(change.put for change in changes.values()):
            changes = {name: TableChanges(put=change.put) for name, change in changes.items()}
        super().write(changes, applied_offset)


class AbsentKeysCannotBeDeleted(MemoryShardStore):
    """Deleting a key that is not there is an error."""

    def write(self, changes, applied_offset):
        for name, change in changes.items():
            for key in change.delete:
                if key not in self._table(name).rows:
                    raise CoordinatorStoreError(f"there is no {key}")
        super().write(changes, applied_offset)


class GetsByPrefix(MemoryShardStore):
    """A row is found by the first column of its key."""

    def get(self, table, key):
        found = self._table(table)
        return next((found.rows[one] for one in found.keys if one[:1] == key[:1]), None)


class WritesAThousandRowsAtMost(MemoryShardStore):
    """Of a large write only the first thousand rows arrive."""

    def write(self, changes, applied_offset):
        super().write(
            {name: TableChanges(change.put[:1000], change.delete[:1000]) for name, change in changes.items()},
            applied_offset,
        )


class EmptyWritesAreDropped(MemoryShardStore):
    """A write without changes does not move the applied offset."""

    def write(self, changes, applied_offset):
        if changes:
            super().write(changes, applied_offset)


class OffsetsNeverGoBack(MemoryShardStore):
    """The applied offset is the highest that there ever was."""

    highest = 0

    def write(self, changes, applied_offset):
        self.highest = max(self.highest, applied_offset)
        super().write(changes, self.highest)


class OneTableForAll(MemoryShardStore):
    """All tables share their rows."""

    def write(self, changes, applied_offset):
        super().write(changes, applied_offset)
        for change in changes.values():
            for row in change.put:
                self._open_shard().tables["pairs"].put((str(row).encode(), 0, None, None, None))


class StaleReads(MemoryShardStore):
    """What was read once is answered from a cache for ever."""

    def __init__(self, shard: _MemoryShard) -> None:
        super().__init__(shard)
        self.cache = {}

    def get(self, table, key):
        return self.cache.setdefault((table, key), super().get(table, key))


class HalfAWrite(MemoryShardStore):
    """A write that fails in its second table leaves what it did to the first one."""

    def write(self, changes, applied_offset):
        for name, change in changes.items():
            super().write({name: change}, self.applied_offset())
        super().write({}, applied_offset)


class ForeignErrors(MemoryShardStore):
    """What the database raises reaches the core as it is."""

    def write(self, changes, applied_offset):
        try:
            super().write(changes, applied_offset)
        except CoordinatorStoreError as error:
            raise OverflowError(str(error)) from error


class LargeIntegersAreCut(MemoryShardStore):
    """An integer of more than 64 bits is cut to them without a word."""

    def write(self, changes, applied_offset):
        for change in changes.values():
            change.put[:] = [tuple(map(_cut, row)) for row in change.put]
        super().write(changes, applied_offset)


def _cut(value):
    return value % 2**63 if isinstance(value, int) and value >= 2**63 else value


class WritesLater(MemoryShardStore):
    """A write returns before it took place, in a thread that does it later."""

    later = None

    def write(self, changes, applied_offset):
        if self.later is not None:
            self.later.join()
        self.later = threading.Timer(0.01, super().write, (changes, applied_offset))
        self.later.start()

    def close(self):
        if self.later is not None:
            self.later.join()
        super().close()


CORRECT = (
    Correct(noun=NOUN, name="memory", suite=memory_suite(MemoryCoordinatorStore)),
    Correct(noun=NOUN, name="files", suite=file_suite(FileStore)),
)

FAULTS = (
    memory_fault("large-integers-lose-precision", LargeIntegersLosePrecision, "integers keep all of their 64 bits"),
    memory_fault("empty-text-is-none", EmptyTextIsNone, "none is kept apart from empty and zero"),
    memory_fault("empty-bytes-are-none", EmptyBytesAreNone, "none is kept apart from empty and zero"),
    memory_fault("text-ends-at-nul", TextEndsAtNul, "keys are ordered"),
    memory_fault("text-is-latin-1", TextIsNormalized, "comes back with all columns"),
    memory_fault("long-keys-are-cut", LongKeysAreCut, "long keys are kept whole and in order"),
    memory_fault("large-values-are-cut", LargeValuesAreCut, "large values are kept whole"),
    memory_fault("rows-are-lists", RowsAreLists, "with their types"),
    memory_fault("none-keeps-the-old-value", NoneKeepsTheOldValue, "a put replaces the row of the same key"),
    memory_fault("deletes-by-prefix", DeletesByPrefix, "a delete removes that row and no other"),
    memory_fault("deletes-forgotten-beside-puts", DeletesNothingThatIsPutLater, "mixes puts and deletes"),
    memory_fault("absent-keys-cannot-be-deleted", AbsentKeysCannotBeDeleted, "deleting an absent key is no error"),
    memory_fault("gets-by-prefix", GetsByPrefix, "found by its whole key only"),
    memory_fault("a-thousand-rows-at-most", WritesAThousandRowsAtMost, "a write of many rows works"),
    memory_fault("empty-writes-are-dropped", EmptyWritesAreDropped, "every write moves the applied offset"),
    memory_fault("applied-offset-never-goes-back", OffsetsNeverGoBack, "drops all rows and the applied offset"),
    memory_fault("tables-share-rows", OneTableForAll, "tables do not mix"),
    memory_fault("stale-reads", StaleReads, "a read shows what the last write left"),
    memory_fault("half-a-write", HalfAWrite, "a write that is refused changes nothing"),
    memory_fault("foreign-errors", ForeignErrors, "a write that is refused changes nothing"),
    memory_fault("integers-beyond-64-bits-are-cut", LargeIntegersAreCut, "kept whole or refused"),
    memory_fault("writes-later", WritesLater, "a read shows what the last write left"),
)
