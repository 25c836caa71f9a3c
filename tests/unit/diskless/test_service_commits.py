"""What a broker is told of each batch of a CommitFile, beside what the coordinator decides."""

from __future__ import annotations

import asyncio
import uuid

from diskless_core.diskless.attempts import ShardAttempts
from diskless_core.diskless.service_commits import FileCommits
from diskless_core.protocol.commit_file import CommitFileRequest
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from tests.support.shards import TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run


def test_a_refused_batch_comes_with_a_reason_and_an_accepted_one_without() -> None:
    async def main() -> None:
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
        shard = await node.start()
        await shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        whole = commit_of(
            "object", batch(), batch(9), batch(producer=(7, 1, 0)), batch(producer=(7, 1, 5)), batch(producer=(7, 0, 0))
        )
        request = CommitFileRequest(
            object_key=whole.object_key,
            object_format=whole.object_format,
            file_size=whole.file_size,
            owner_ids=whole.owner_ids,
            batches=whole.batches,
        )
        first, unknown, second, gap, fenced = (await FileCommits(ShardAttempts({0: shard})).answer(request)).results
        assert (first.message, second.message) == (None, None)
        assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "partition 9" in str(unknown.message)
        assert gap.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert "5 of the producer 7 with the epoch 1" in str(gap.message)
        assert fenced.error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert "epoch 0" in str(fenced.message)
        await node.stop()

    run(main)
