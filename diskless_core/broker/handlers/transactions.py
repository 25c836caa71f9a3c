"""The APIs of transactions, of which there are none yet.

What belongs to a transaction is refused with the one error after which a client gives up; see `find_coordinator`.
"""

from __future__ import annotations

from collections.abc import Iterable

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

_SEVERAL_TRANSACTIONS_SINCE = 4
_REFUSED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_NONE = -1
_STATES = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)

AddedTransaction = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
AddedTopic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
CommittedTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


def add_partitions_to_txn(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Handle AddPartitionsToTxn."""
    if context.api_version < _SEVERAL_TRANSACTIONS_SINCE:
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_topic_v3_and_below=[
                AddedTopic(
                    name=topic.name,
                    results_by_partition=[
                        AddedTopic.AddPartitionsToTxnPartitionResult(partition_index=one, partition_error_code=_REFUSED)
                        for one in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ],
        )
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        results_by_transaction=[
            AddedTransaction(
                transactional_id=transaction.transactional_id,
                topic_results=[_refused(topic.name, topic.partitions) for topic in transaction.topics],
            )
            for transaction in request.transactions
        ],
    )


def _refused(topic: str, partitions: Iterable[int]) -> AddedTransaction.AddPartitionsToTxnTopicResult:
    topic_class = AddedTransaction.AddPartitionsToTxnTopicResult
    partition_class = topic_class.AddPartitionsToTxnPartitionResult
    return topic_class(
        name=topic,
        results_by_partition=[
            partition_class(partition_index=one, partition_error_code=_REFUSED) for one in partitions
        ],
    )


def add_offsets_to_txn(_context: RequestContext, _request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Handle AddOffsetsToTxn."""
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=_REFUSED)


def end_txn(_context: RequestContext, _request: EndTxnRequest) -> EndTxnResponse:
    """Handle EndTxn."""
    return EndTxnResponse(throttle_time_ms=0, error_code=_REFUSED, producer_id=_NONE, producer_epoch=_NONE)


def txn_offset_commit(_context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Handle TxnOffsetCommit."""
    result = CommittedTopic.TxnOffsetCommitResponsePartition
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            CommittedTopic(
                name=topic.name,
                partitions=[
                    result(partition_index=one.partition_index, error_code=_REFUSED) for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def describe_transactions(
    _context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Handle DescribeTransactions: whatever is asked for is unknown."""
    return DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[
            DescribeTransactionsResponse.TransactionState(
                error_code=int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), transactional_id=one, topics=[]
            )
            for one in request.transactional_ids
        ],
    )


def list_transactions(_context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Handle ListTransactions: there are none in any state."""
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        unknown_state_filters=[state for state in request.state_filters if state not in _STATES],
        transaction_states=[],
    )
