"""What a leader gives to the replicas that follow it: claims and accepted entries, from the tail of its own replica.

Only what its own reader has accepted is there, so all of it stands in the log for good, whoever leads by now. A leader
keeps no account of its followers: each says where it is, with the digest of all that it has taken, and waits for more.
(Extension to KIP-1164, "Local state machine".)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from diskless_core.clock import Clock
from diskless_core.coordinator.entries import Acceptance
from diskless_core.coordinator.errors import CoordinatorError, NotCoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.tail import NotInTailError
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.follow_shard import FollowShardAnswer
from diskless_core.protocol.messages import DisklessFollowShardRequest

MAX_WAIT_MS = 30_000
"""The longest that a request may wait."""

CLOSED_WAIT_S = 0.1
"""How long a request may wait that comes when nobody is to wait any more: its sender asks again as soon as it ends."""


class ShardFeeds:
    """Answers DisklessFollowShard from this node's shards."""

    def __init__(self, shards: Iterable[CoordinatorShard[Any]], clock: Clock) -> None:
        self._shards = {shard.id: shard for shard in shards}
        self._clock = clock
        self._closed = False

    def close(self) -> None:
        """Let everybody go who waits now. Who asks from now on waits for a moment only."""
        self._closed = True
        for shard in self._shards.values():
            shard.tail.wake()

    async def follow(self, request: DisklessFollowShardRequest) -> FollowShardAnswer:
        """What was accepted beyond the follower's position; it waits while there is nothing.

        The error code tells the follower to read the log itself: OFFSET_OUT_OF_RANGE where the tail does not go back
        that far, CORRUPT_MESSAGE where the follower has taken something else than this replica, UNKNOWN_LEADER_EPOCH
        where it knows of a later claim, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS where this node does not lead.
        """
        shard = self._shards.get(ShardId(request.shard_topic, request.shard_index))
        try:
            if shard is None:
                raise NotCoordinatorError("this broker has no such shard")
            return await self._accepted(shard, request)
        except NotInTailError as error:
            next_offset = shard.next_offset if shard is not None else -1
            return _refused(ErrorCode.OFFSET_OUT_OF_RANGE, str(error), next_offset)
        except CoordinatorError as error:
            return _refused(error.code, str(error))

    async def _accepted(self, shard: CoordinatorShard[Any], request: DisklessFollowShardRequest) -> FollowShardAnswer:
        offset = request.next_offset
        theirs = Acceptance(request.term, request.next_sequence, request.digest)
        was_closed = self._closed
        wait_s = min(max(0, request.max_wait_ms), MAX_WAIT_MS) / 1000
        deadline = self._clock.monotonic() + (min(wait_s, CLOSED_WAIT_S) if was_closed else wait_s)
        while True:
            if shard.require_leading() < theirs.term:
                return _refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"this broker has not read the claim at {theirs.term}")
            if offset <= shard.next_offset:
                if shard.tail.acceptance_at(offset) != theirs:
                    return _refused(ErrorCode.CORRUPT_MESSAGE, f"the digests at offset {offset} differ", offset)
                found = shard.tail.since(offset, request.max_bytes)
                if found or offset < shard.next_offset:
                    is_all = not found or found[-1] is shard.tail.last
                    return FollowShardAnswer(
                        next_offset=shard.next_offset if is_all else found[-1].batch.next_offset,
                        digest=found[-1].acceptance.digest if found else theirs.digest,
                        entries=[entry.packed for entry in found],
                    )
            left = deadline - self._clock.monotonic()
            if left <= 0 or self._closed is not was_closed:
                return FollowShardAnswer(next_offset=min(offset, shard.next_offset))
            await shard.tail.until_more(left)


def _refused(error: ErrorCode, message: str, next_offset: int = -1) -> FollowShardAnswer:
    return FollowShardAnswer(error_code=int(error), error_message=message, next_offset=next_offset)
