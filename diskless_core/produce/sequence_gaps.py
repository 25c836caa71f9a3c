"""Whether a gap in a producer's sequence numbers may still fill, where it may write by several brokers.

A batch that does not follow is out of order. Of a client's own making that is in Apache Kafka too, where a partition
has one leader at a time: what the one before did not take, nobody takes any more. Here the batch before may be under
way at another broker, which is slow or stood still, and be committed yet. librdkafka takes OUT_OF_ORDER_SEQUENCE_NUMBER
for the news that it was lost: it sends everything again that has no answer, in all partitions, with a new epoch. Then
what was under way is there twice. So a gap is first refused with an error after which all clients send the same batch
again, and is out of order when it has stayed one for as long as an append of a coordinator may take.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.clock import Clock
from diskless_core.diskless.commands import BatchResult, CommitBatch
from diskless_core.protocol.errors import ErrorCode

PATIENCE_S = 45.0
"""From the first refusal behind a gap on. An append that was never answered counts as over then."""

_IS_GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

MOST = 10_000
"""Gaps that are remembered. Behind one more nothing is final until one of these is forgotten."""

_Producer = tuple[bytes, int, int, int]
"""Topic id, partition, producer id and epoch."""


@dataclass(slots=True)
class _Gap:
    """What one producer wants to write to a partition behind a gap.

    Attributes:
        first_sequence: of the first batch behind it, which alone can become final: the others follow on that one.
        since_s: when a batch behind it was refused first, on the monotonic clock.
        seen_s: when that first batch was refused last.
    """

    first_sequence: int
    since_s: float
    seen_s: float


class SequenceGaps:
    """The gaps behind which this broker has lately refused batches.

    One is forgotten when a batch of its producer gets in, and when nobody has asked for as long as it takes to become
    final.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gaps: OrderedDict[_Producer, _Gap] = OrderedDict()

    def judged(self, batches: Sequence[CommitBatch], results: Sequence[BatchResult]) -> Sequence[BatchResult]:
        """What producers are told of these batches, of which a coordinator has said these results."""
        if not self._gaps and all(result.error is not _IS_GAP for result in results):
            return results
        return [self._judged(*pair) for pair in zip(batches, results, strict=True)]

    def _judged(self, batch: CommitBatch, result: BatchResult) -> BatchResult:
        producer = (batch.topic_id, batch.partition, batch.producer_id, batch.producer_epoch)
        if result.error is ErrorCode.NONE:
            self._gaps.pop(producer, None)
        if result.error is not _IS_GAP or self._is_final(producer, batch.base_sequence):
            return result
        return result._replace(error=ErrorCode.NOT_ENOUGH_REPLICAS)

    def _is_final(self, producer: _Producer, sequence: int) -> bool:
        now_s = self._clock.monotonic()
        gap = self._gaps.get(producer)
        if gap is None or now_s - gap.seen_s >= PATIENCE_S:
            gap = self._remembered(producer, _Gap(sequence, now_s, now_s))
        if gap is None or sequence > gap.first_sequence:
            return False
        gap.first_sequence, gap.seen_s = sequence, now_s
        self._gaps.move_to_end(producer)
        return now_s - gap.since_s >= PATIENCE_S

    def _remembered(self, producer: _Producer, gap: _Gap) -> _Gap | None:
        """None where there are too many already."""
        while self._gaps and gap.since_s - next(iter(self._gaps.values())).seen_s >= PATIENCE_S:
            self._gaps.popitem(last=False)
        if len(self._gaps) >= MOST and producer not in self._gaps:
            return None
        self._gaps[producer] = gap
        return gap
