"""The log of a simulated world in a modelled Kafka: the real plugin, on clients that stand for librdkafka's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, LeadershipHint, LogBatch
from diskless_core.plugin.shard import ShardId
from diskless_kafka.kafka_log import KafkaCoordinatorLog
from diskless_kafka.log_backend import LogBackend
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.log_producer import DeliveryReport
from diskless_kafka.log_reader import Delivery, Place, ReadMessage
from diskless_kafka.log_topics import topic_name
from diskless_kafka.nominations import Nomination
from diskless_kafka.topic_ids import TopicIds
from tests.simulation.kafka_clients import (
    ModelledHistory,
    ModelledMember,
    ModelledProducer,
    ModelledReader,
    ModelledTopics,
    SteppedNomination,
)
from tests.simulation.logs import Host, Watcher
from tests.simulation.modelled_kafka import ModelledKafka
from tests.simulation.processes import outside

STEP_S = 0.5
SETTINGS = KafkaLogSettings.model_validate(
    {
        "bootstrap.servers": "kafka:9092",
        "append.timeout.ms": 5_000,
        "session.timeout.ms": 3_000,
        "tail.bytes": 2_000,
    }
)


class ModelledBackend:
    """In the place of `LogBackend`."""

    def __init__(
        self, kafka: ModelledKafka, node_id: int, settings: KafkaLogSettings, *, writes: bool, step_s: float
    ) -> None:
        self.settings = settings
        self.stopped = asyncio.Event()
        self.writes = writes
        self.topics = ModelledTopics(kafka, settings.topic_prefix)
        self.reader: ModelledReader
        self._kafka = kafka
        self._node_id = node_id
        self._step_s = step_s

    async def open(self, deliver: Delivery) -> None:
        """As the real one's."""
        self.reader = ModelledReader(self._kafka, self._node_id, deliver)

    async def close(self) -> None:
        self.stopped.set()
        await self.reader.stop()

    def run(self, call: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        """Ask the Kafka, which takes a while."""
        return self._asked(lambda: call(*arguments))

    def read_history(self, history: ModelledHistory) -> Awaitable[Sequence[ReadMessage]]:
        return self._asked(history.read, may_fail=False)

    def history(self, place: Place, offset: int) -> ModelledHistory:
        return ModelledHistory(self._kafka, self._node_id, place, offset)

    def give_up(self, history: ModelledHistory) -> None:
        """Nothing is held."""

    async def open_producer(self, on_error: DeliveryReport) -> ModelledProducer:
        return await self._asked(
            lambda: ModelledProducer(self._kafka, self.settings.append_timeout_ms / 1000, on_error)
        )

    def close_producer(self, producer: ModelledProducer) -> None:
        producer.close()

    def nomination(self, shard: ShardId, node_id: int, tell: Callable[[LeadershipHint], None]) -> Nomination:
        place = topic_name(shard, self.settings.topic_prefix), shard.index
        session_s, now_s = self.settings.session_timeout_ms / 1000, asyncio.get_running_loop().time
        return SteppedNomination(
            lambda: self.topics.ensure(shard),
            lambda told: ModelledMember(self._kafka, place, f"node {node_id}", session_s, now_s, told),
            place,
            node_id,
            tell,
            step_s=self._step_s,
        )

    async def _asked(self, ask: Callable[[], Any], *, may_fail: bool = True) -> Any:
        async def work() -> Any:
            await asyncio.sleep(self._kafka.delay_s())
            if may_fail and self._kafka.fails():
                raise CoordinatorLogError("the Kafka does not answer")
            return ask()

        return await outside(work())


def plugin_on(
    kafka: ModelledKafka, context: PluginContext, settings: KafkaLogSettings, *, step_s: float
) -> KafkaCoordinatorLog:
    """The plugin of one broker, on a modelled Kafka."""

    def new_backend(node_id: int, settings: KafkaLogSettings, ids: TopicIds, *, writes: bool) -> LogBackend:
        del ids
        return cast("LogBackend", ModelledBackend(kafka, node_id, settings, writes=writes, step_s=step_s))

    return KafkaCoordinatorLog(context, settings, new_backend)


class LogInKafka:
    """A `WorldLog`."""

    nominates_all_shards = False
    notices_the_dead = True

    def __init__(self, shard_ids: Sequence[ShardId], source: random.Random, watcher: Watcher) -> None:
        shards = {self._place(shard): shard for shard in shard_ids}
        self.kafka = ModelledKafka(
            source, lambda place, offset, value: watcher(shards[place], LogBatch(offset, offset + 1, value))
        )
        self._foreign_rate = source.choice([0.0, 0.05, 0.3])

    @property
    def error_rate(self) -> float:
        return self.kafka.error_rate

    @error_rate.setter
    def error_rate(self, rate: float) -> None:
        self.kafka.error_rate = rate
        self.kafka.foreign_rate = self._foreign_rate

    @property
    def slow_rate(self) -> float:
        return self.kafka.slow_rate

    @slow_rate.setter
    def slow_rate(self, rate: float) -> None:
        self.kafka.slow_rate = rate

    def plugin(self, host: Host) -> CoordinatorLog:
        context = PluginContext(
            node_id=host.node_id, data_dir=Path("nowhere"), log_dir=Path("nowhere"), clock=host.clock
        )
        return plugin_on(self.kafka, context, SETTINGS, step_s=STEP_S)

    def end(self, shard: ShardId) -> int:
        return self.kafka.partition(self._place(shard)).high_watermark

    def pause_reads(self, node_id: int) -> None:
        self.kafka.pause(node_id)

    def resume_reads(self, node_id: int) -> None:
        self.kafka.resume(node_id)

    def nominates(self, shard: ShardId, node_id: int) -> bool:
        registered = self.kafka.group(self._place(shard)).committed
        return registered is not None and registered[1] == str(node_id)

    def nominate(self, shard: ShardId, leader: int, seen_by: Iterable[int] | None = None) -> None:
        """Rebalance the group: the member after the one that has the partition gets it."""
        del leader, seen_by
        self.kafka.group(self._place(shard)).pass_on()

    def land_all(self) -> None:
        """What is on its way lands by itself, or does not."""

    @staticmethod
    def _place(shard: ShardId) -> Place:
        return topic_name(shard, SETTINGS.topic_prefix), shard.index
