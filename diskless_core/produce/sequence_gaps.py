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

from diskless_core.clock import Clock
from diskless_core.diskless.commands import BatchResult, CommitBatch
from diskless_core.protocol.errors import ErrorCode

PATIENCE_S = 45.0
"""From the first refusal of a batch on. An append that was never answered counts as over then."""

MOST = 10_000
"""Batches that are remembered. Of more than these the one that was refused least recently begins anew."""

_Batch = tuple[bytes, int, int, int, int]
"""Topic id, partition, producer id, epoch and first sequence number."""


class SequenceGaps:
    """The batches that this broker has lately refused since they do not follow."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: OrderedDict[_Batch, float] = OrderedDict()

    def judged(self, batches: Sequence[CommitBatch], results: Sequence[BatchResult]) -> Sequence[BatchResult]:
        """What producers are told of these batches, of which a coordinator has said these results."""
        if all(result.error is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER for result in results):
            return results
        return [self._judged(*pair) for pair in zip(batches, results, strict=True)]

    def _judged(self, batch: CommitBatch, result: BatchResult) -> BatchResult:
        if result.error is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return result
        now_s = self._clock.monotonic()
        name = (batch.topic_id, batch.partition, batch.producer_id, batch.producer_epoch, batch.base_sequence)
        since_s = self._since.setdefault(name, now_s)
        self._since.move_to_end(name)
        if len(self._since) > MOST:
            self._since.popitem(last=False)
        return result if now_s - since_s >= PATIENCE_S else result._replace(error=ErrorCode.NOT_ENOUGH_REPLICAS)
