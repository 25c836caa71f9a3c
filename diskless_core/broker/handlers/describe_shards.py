"""DisklessDescribeShards: how far this broker's copies of the shards are, for other brokers.

The controller says why brokers are fenced, too.
"""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessDescribeShardsRequest, DisklessDescribeShardsResponse

Described = DisklessDescribeShardsResponse.DisklessDescribedShard
Fenced = DisklessDescribeShardsResponse.DisklessFencedBroker


def describe_shards(context: RequestContext, request: DisklessDescribeShardsRequest) -> DisklessDescribeShardsResponse:
    """Handle DisklessDescribeShards."""
    if not context.is_authorized:
        return DisklessDescribeShardsResponse(
            error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), shards=[], fenced_brokers=[]
        )
    return DisklessDescribeShardsResponse(
        error_code=int(ErrorCode.NONE),
        shards=[
            Described(
                shard_topic=shard.topic,
                shard_index=shard.index,
                is_leading=copy.is_leading,
                term=copy.term,
                next_offset=copy.next_offset,
                stored_offset=copy.stored_offset,
                failure=copy.failure,
            )
            for shard, copy in context.services.shard_copies.own().items()
            if not request.shard_topics or shard.topic in request.shard_topics
        ],
        fenced_brokers=[
            Fenced(broker_id=node_id, reason=reason)
            for node_id, reason in (context.services.fenced_brokers.own() or {}).items()
        ],
    )
