"""Requests about many topics: what each topic waits for is waited for once, and each has its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest

from diskless_core.broker.handlers import topics
from diskless_core.broker.handlers.partitions import create_partitions
from diskless_core.config.broker import BrokerConfig
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import AppendFault, SharedLog
from tests.support.admin_requests import grown
from tests.support.requests import new_topic
from tests.support.virtual_time import run
from tests.unit.cluster.test_topics import CLUSTER, ClusterNode, started

APPEND_S = 0.01
TOPICS = 100
ENOUGH_S = 10 * APPEND_S
"""Far less than two appends for each topic."""


class Administrator:
    """Calls the handlers as if a client had sent the requests."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self._context: Any = SimpleNamespace(
            services=SimpleNamespace(
                topics=node.topics,
                configs=node.topics._configs,
                config=BrokerConfig(),
                clock=node.clock,
                registered_brokers=lambda: {1},
            ),
            api_version=6,
        )

    async def create(self, *asked: Any) -> list[Any]:
        request = CreateTopicsRequest(topics=list(asked), timeout_ms=1000, validate_only=False)
        answers: list[Any] = (await topics.create_topics(self._context, request)).topics
        return answers

    async def grow(self, *asked: Any) -> list[Any]:
        request = CreatePartitionsRequest(topics=list(asked), timeout_ms=1000, validate_only=False)
        answers: list[Any] = (await create_partitions(self._context, request)).results
        return answers

    async def delete(self, *names: str) -> list[Any]:
        asked = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None) for name in names]
        answers: list[Any] = (
            await topics.delete_topics(self._context, DeleteTopicsRequest(topics=asked, timeout_ms=1000))
        ).responses
        return answers


@asynccontextmanager
async def administrator() -> AsyncIterator[Administrator]:
    async with started(SharedLog()) as node:
        append = node.log.append

        async def slowly(shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
            await asyncio.sleep(APPEND_S)
            return await append(shard, batches)

        node.log.append = slowly  # type: ignore[method-assign]
        yield Administrator(node)


def outcomes(answers: list[Any]) -> list[tuple[str, int]]:
    return [(answer.name, answer.error_code) for answer in answers]


def test_many_topics_are_created_grown_and_deleted_in_the_time_of_a_few() -> None:
    async def main() -> None:
        async with administrator() as admin:
            loop = asyncio.get_running_loop()
            names = [f"t{number}" for number in range(TOPICS)]
            done = [(name, 0) for name in names]
            begun = loop.time()
            assert outcomes(await admin.create(*map(new_topic, names))) == done
            created = loop.time()
            assert outcomes(await admin.grow(*(grown(name, 2) for name in names))) == done
            more = loop.time()
            admin.node.assert_consistent()
            assert outcomes(await admin.delete(*names)) == done
            assert max(created - begun, more - created, loop.time() - more) < ENOUGH_S
            admin.node.assert_consistent()
            assert list(admin.node.topics.all()) == []

    run(main)


def test_each_topic_of_many_has_its_own_outcome_in_the_order_of_the_request() -> None:
    async def main() -> None:
        async with administrator() as admin:
            await admin.create(new_topic("there"))
            asked = ["a.b", "there", "twice", "a_b", "", "z", "twice", "b"]
            invalid = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
            assert outcomes(await admin.create(*map(new_topic, asked))) == [
                ("a.b", 0),
                ("there", int(ErrorCode.TOPIC_ALREADY_EXISTS)),
                ("twice", int(ErrorCode.INVALID_REQUEST)),
                ("a_b", invalid),
                ("", invalid),
                ("z", 0),
                ("b", 0),
            ]
            unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            twice = int(ErrorCode.INVALID_REQUEST)
            assert outcomes(await admin.delete("z", "twice", "b", "b", "a.b")) == [
                ("z", 0),
                ("twice", unknown),
                ("b", twice),
                ("a.b", 0),
            ]

    run(main)


def test_topics_of_unknown_outcome_are_there_or_not_as_the_log_has_it_in_the_end() -> None:
    async def main() -> None:
        async with administrator() as admin:
            names = [f"t{number}" for number in range(10)]
            admin.node.shared.fail_next_append(AppendFault.ALL_APPENDED, shard=CLUSTER)
            answers = outcomes(await admin.create(*map(new_topic, names)))
            assert [name for name, _ in answers] == names
            assert all(code for _, code in answers)
            await admin.node.settled()
            assert len(list(admin.node.topics.all())) == 10
            admin.node.assert_consistent()

    run(main)
