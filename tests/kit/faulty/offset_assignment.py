"""Offset assignments that overlap, forget, and depend on more than what they are asked."""

from __future__ import annotations

import itertools
import random
import struct
import time
from collections.abc import Sequence

import pytest

from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.testing.offset_assignment import MakeAssignment, OffsetAssignmentContract
from tests.kit.fault import Correct, Fault, MakeSuite, Unfound

NOUN = "offset_assignment"


class Consecutive(OffsetAssignment):
    """As Kafka does it."""

    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        return self.laid_out(next_offset, record_counts)

    def laid_out(self, next_offset: int, record_counts: Sequence[int]) -> list[int]:
        offsets = []
        for count in record_counts:
            offsets.append(next_offset)
            next_offset += count
        return offsets


class Aligned(OffsetAssignment):
    """With gaps: each batch begins at a multiple of 16."""

    def assign(self, next_offset, record_counts):
        offsets = []
        for count in record_counts:
            offsets.append(-(-next_offset // 16) * 16)
            next_offset = offsets[-1] + count
        return offsets


class RecordsAreNotCounted(Consecutive):
    """Each batch takes one offset, however many records it has."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset, [1] * len(record_counts))


class LastOffsetIsSharedByTwo(Consecutive):
    """A batch begins at the last offset of the one before it."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset, [max(1, count - 1) for count in record_counts])


class AllBeginAtTheFirstFreeOffset(Consecutive):
    """All batches of a commit get the same offset."""

    def assign(self, next_offset, record_counts):
        return [next_offset] * len(record_counts)


class NextOffsetIsTakenForTheLast(Consecutive):
    """The first batch begins one offset too early: at one that is taken."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(max(0, next_offset - 1), record_counts)


class EveryCommitBeginsAtZero(Consecutive):
    """The first free offset is ignored."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(0, record_counts)


class LargestBatchFirst(Consecutive):
    """Offsets are dealt out by the size of the batches, not in their order of arrival."""

    def assign(self, next_offset, record_counts):
        offsets = [0] * len(record_counts)
        for index in sorted(range(len(record_counts)), key=lambda index: -record_counts[index]):
            offsets[index] = next_offset
            next_offset += record_counts[index]
        return offsets


class OrderIsReversed(Consecutive):
    """The last batch gets the first offset."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset, record_counts[::-1])[::-1]


class GivesTheEndToo(Consecutive):
    """There is one offset too many: the next commit's."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset, [*record_counts, 1] if record_counts else [])


class EqualBatchesAreOne(Consecutive):
    """Of adjacent batches with as many records, only the first gets an offset."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset, [count for count, _ in itertools.groupby(record_counts)])


class NeedsABatch(Consecutive):
    """A commit without batches is an IndexError."""

    def assign(self, next_offset, record_counts):
        first = record_counts[0]
        return self.laid_out(next_offset, [first, *record_counts[1:]])


class PacksInto32Bits(Consecutive):
    """Record counts have 31 bits, and so have its offsets: others are a struct.error."""

    def assign(self, next_offset, record_counts):
        return [
            struct.unpack(">i", struct.pack(">i", offset))[0] for offset in super().assign(next_offset, record_counts)
        ]


class OffsetsAreFloats(Consecutive):
    """Offsets are computed as floating-point numbers."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset, [count / 1 for count in record_counts])


class FloatsInBetween(Consecutive):
    """Offsets are integers that were floating-point numbers: beyond 2**53 some are lost."""

    def assign(self, next_offset, record_counts):
        return [int(float(offset)) for offset in super().assign(next_offset, record_counts)]


class GapsGrow(Consecutive):
    """Every batch doubles its offset, so that 63 bits are soon used up."""

    def assign(self, next_offset, record_counts):
        offsets = []
        for count in record_counts:
            offsets.append(2 * next_offset)
            next_offset = offsets[-1] + count
        return offsets


class GivesAGenerator(Consecutive):
    """Offsets come from a generator, which has no length."""

    def assign(self, next_offset, record_counts):
        return (offset for offset in super().assign(next_offset, record_counts))


class CallsItselfForEachBatch(Consecutive):
    """A commit of many batches is a RecursionError."""

    def assign(self, next_offset, record_counts):
        if not record_counts:
            return []
        return [next_offset, *self.assign(next_offset + record_counts[0], record_counts[1:])]


class CountsByItself(Consecutive):
    """It remembers the highest offset it gave, and never goes below: replays get other offsets."""

    def __init__(self) -> None:
        self.free = 0

    def assign(self, next_offset, record_counts):
        offsets = self.laid_out(max(next_offset, self.free), record_counts)
        self.free = max(self.free, *(o + c for o, c in zip(offsets, record_counts, strict=True)), 0)
        return offsets


class CachesByLength(Consecutive):
    """Answers are remembered by the number of batches alone."""

    def __init__(self) -> None:
        self.known: dict[int, list[int]] = {}

    def assign(self, next_offset, record_counts):
        shape = self.known.setdefault(len(record_counts), self.laid_out(0, record_counts))
        return [next_offset + offset for offset in shape]


class SpacedAtRandom(Consecutive):
    """There is a gap of random size before each commit."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset + random.getrandbits(20), record_counts)


class SpacedByInstance(Consecutive):
    """Each instance leaves a gap of its own, as if by node."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self.gap = next(self.numbers)

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset + self.gap, record_counts)


class SpacedByTheClock(Consecutive):
    """There is a gap before each commit that depends on the time."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset + time.monotonic_ns() % 1_000_003, record_counts)


class SpacedByHash(Consecutive):
    """There is a gap that depends on the hash of a text, which every process seeds differently."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset + hash(str(next_offset)) % 1000, record_counts)


class UsesUpItsArgument(Consecutive):
    """The record counts are taken out of the list that it was given."""

    def assign(self, next_offset, record_counts):
        counts, left = [], record_counts if isinstance(record_counts, list) else list(record_counts)
        while left:
            counts.append(left.pop(0))
        return self.laid_out(next_offset, counts)


class NeedsAList(Consecutive):
    """Record counts that are no list are a TypeError."""

    def assign(self, next_offset, record_counts):
        return self.laid_out(next_offset, record_counts + [1])[:-1]  # noqa: RUF005 - what is wrong with it


class GivesOneBuffer(Consecutive):
    """The list that one call gave is filled anew by the next."""

    def __init__(self) -> None:
        self.buffer: list[int] = []

    def assign(self, next_offset, record_counts):
        self.buffer[:] = self.laid_out(next_offset, record_counts)
        return self.buffer


def _suite(backend: type[OffsetAssignment]) -> MakeSuite:
    class Suite(OffsetAssignmentContract):
        @pytest.fixture
        def make_assignment(self) -> MakeAssignment:
            return backend

    return lambda: Suite


def _fault(name: str, backend: type[OffsetAssignment], promise: str) -> Fault:
    return Fault(noun=NOUN, name=name, says=(backend.__doc__ or "").strip(), promise=promise, suite=_suite(backend))


_FREE = "batches begin at free offsets in order and do not overlap"
_SAME = "another instance that is asked in another order gives the same offsets"

FAULTS = (
    _fault("records-are-not-counted", RecordsAreNotCounted, _FREE),
    _fault("two-batches-share-an-offset", LastOffsetIsSharedByTwo, _FREE),
    _fault("all-batches-get-one-offset", AllBeginAtTheFirstFreeOffset, _FREE),
    _fault("the-next-offset-is-taken-for-the-last", NextOffsetIsTakenForTheLast, "is the first free offset"),
    _fault("every-commit-begins-at-0", EveryCommitBeginsAtZero, "never takes an offset twice"),
    _fault("the-largest-batch-comes-first", LargestBatchFirst, "begin at free offsets in order"),
    _fault("the-order-is-reversed", OrderIsReversed, "begin at free offsets in order"),
    _fault("the-end-is-given-too", GivesTheEndToo, "there is one offset for each batch"),
    _fault("equal-batches-are-one", EqualBatchesAreOne, "there is one offset for each batch"),
    _fault("an-empty-commit-fails", NeedsABatch, "an empty commit gets no offsets"),
    _fault("offsets-have-32-bits", PacksInto32Bits, _FREE),
    _fault("offsets-are-floats", OffsetsAreFloats, "an offset is an int"),
    _fault("offsets-were-floats", FloatsInBetween, _FREE),
    _fault("gaps-use-up-the-offsets", GapsGrow, "fits into 63 bits"),
    _fault("offsets-are-a-generator", GivesAGenerator, "given as a sequence"),
    _fault("many-batches-fail", CallsItselfForEachBatch, "many batches in one commit each get their offsets"),
    _fault("it-counts-by-itself", CountsByItself, _SAME),
    _fault("answers-are-cached-by-length", CachesByLength, "is the first free offset"),
    _fault("gaps-are-random", SpacedAtRandom, _SAME),
    _fault("gaps-depend-on-the-instance", SpacedByInstance, _SAME),
    _fault("gaps-depend-on-the-clock", SpacedByTheClock, _SAME),
    _fault("gaps-depend-on-the-process", SpacedByHash, "another process gives the same offsets"),
    _fault("the-argument-is-used-up", UsesUpItsArgument, "its arguments are left alone"),
    _fault("the-argument-has-to-be-a-list", NeedsAList, "may be any sequence"),
    _fault("the-answer-is-a-shared-buffer", GivesOneBuffer, "later calls do not change offsets that were given"),
)

CORRECT = (
    Correct(noun=NOUN, name="consecutive", suite=_suite(Consecutive)),
    Correct(noun=NOUN, name="aligned-with-gaps", suite=_suite(Aligned)),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That a partition begins at 1, or that there are gaps.",
        reason="Both are allowed: an offset may be any free one, and consumers have to cope with gaps.",
    ),
    Unfound(
        noun=NOUN,
        says="That offsets depend on the node, its files or its environment.",
        reason="A suite has one machine. It compares instances, the order of calls, and two processes of it.",
    ),
    Unfound(
        noun=NOUN,
        says="That offsets change slowly with the time, by the day say.",
        reason="All calls of a suite fall into a few seconds of one day, and a policy may read any clock.",
    ),
    Unfound(
        noun=NOUN,
        says="That a call does I/O.",
        reason="As long as its answer does not depend on it, nothing shows it. The broker logs calls that take longer "
        "than 0.1 s.",
    ),
)
