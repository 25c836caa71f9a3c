"""What the copies of a shard say together, and what is known when a broker does not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from diskless_core.broker.shard_copies import ANSWER_MS, AllShardCopies, Copy, ShardCopies
from diskless_core.coordinator.peers import PeerRequest, PeerUnavailableError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessDescribeShardsRequest, DisklessDescribeShardsResponse
from diskless_core.shards import CLUSTER_SHARD
from tests.support.virtual_time import run


def copy(term: int, next_offset: int, *, is_leading: bool = False) -> Copy:
    return Copy(is_leading=is_leading, term=term, next_offset=next_offset, stored_offset=0, failure=None)


def test_who_leads_in_the_latest_term_leads_and_others_are_behind_it() -> None:
    found = ShardCopies(
        shard=CLUSTER_SHARD,
        copies={1: copy(3, 20, is_leading=True), 2: copy(9, 30, is_leading=True), 3: copy(9, 28), 4: None},
    )

    assert (found.leader, found.term, found.high_watermark) == (2, 9, 30)
    assert [found.lag(node_id) for node_id in (1, 2, 3, 4)] == [10, 0, 2, None]


def test_a_deposed_leader_does_not_lead_though_its_successor_does_not_answer() -> None:
    found = ShardCopies(shard=CLUSTER_SHARD, copies={1: copy(3, 20, is_leading=True), 2: None, 3: copy(9, 28)})

    assert found.leader is None


def test_nothing_is_known_of_a_shard_that_nobody_has() -> None:
    found = ShardCopies(shard=CLUSTER_SHARD, copies={1: None})

    assert (found.leader, found.term, found.high_watermark) == (None, -1, 0)


class Peers:
    """Broker 2 answers, 3 refuses, 4 is silent, 5 cannot be reached."""

    def node_ids(self) -> list[int]:
        return [2, 3, 4, 5]

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        assert request.api_key == DisklessDescribeShardsRequest.API_KEY
        if node_id == 5:
            raise PeerUnavailableError("no connection")
        if node_id == 4:
            await asyncio.sleep(1e9)
        told = DisklessDescribeShardsResponse.DisklessDescribedShard(
            shard_topic=CLUSTER_SHARD.topic,
            shard_index=0,
            is_leading=True,
            term=7,
            next_offset=12,
            stored_offset=11,
            failure=None,
        )
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if node_id == 3 else ErrorCode.NONE
        return bytes(DisklessDescribeShardsResponse(error_code=int(code), shards=[told]).encode(version=0))


def test_brokers_that_do_not_answer_are_shown_and_hold_nobody_up() -> None:
    own = SimpleNamespace(
        id=CLUSTER_SHARD, leading=False, latest_term=7, next_offset=10, stored_offset=10, failure="broken"
    )
    coordinators: Any = SimpleNamespace(
        all=lambda: [own], followed=lambda: [own], is_to_follow=lambda shard, node_id: node_id != 5
    )
    peers: Any = Peers()

    async def ask() -> None:
        async with asyncio.timeout(ANSWER_MS / 1000 + 0.1):
            [found] = await AllShardCopies(1, coordinators, peers, peers).all()
        assert found.shard == CLUSTER_SHARD
        assert [node_id for node_id, one in found.copies.items() if one is not None] == [1, 2]
        assert sorted(found.copies) == [1, 2, 3, 4], "the last one is not nominated, and hides nothing"
        assert (found.leader, found.lag(1), found.copies[1].failure) == (2, 2, "broken")

    run(ask)
