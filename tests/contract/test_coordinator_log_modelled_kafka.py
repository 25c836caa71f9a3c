"""The contract of `coordinator_log` on the Kafka that the simulation models: so what is simulated is no fantasy."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.testing.coordinator_log import CoordinatorLogContract
from diskless_core.testing.coordinator_log_tools import HangBackend, MakeLog
from tests.simulation.kafka_log import SETTINGS, plugin_on
from tests.simulation.modelled_kafka import ModelledKafka

CLOCK = SystemClock()
STEP_S = 0.01
HOURS_S = 7_200.0


class TestModelledKafka(CoordinatorLogContract):
    @pytest.fixture
    def kafka(self) -> ModelledKafka:
        return ModelledKafka(random.Random(1), lambda *_: None)

    @pytest.fixture
    def changed(self) -> dict[str, int]:
        """Settings that are not those of the simulation."""
        return {}

    @pytest.fixture
    def make_log(self, kafka: ModelledKafka, changed: dict[str, int], tmp_path: Path) -> MakeLog:
        def make(node_id: int = 1) -> CoordinatorLog:
            context = PluginContext(node_id=node_id, data_dir=tmp_path, log_dir=tmp_path, clock=CLOCK)
            return plugin_on(kafka, context, SETTINGS.model_copy(update=changed), step_s=STEP_S)

        return make

    @pytest.fixture
    def hang_backend(
        self, kafka: ModelledKafka, changed: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> HangBackend:
        changed["append_timeout_ms"] = 300

        @asynccontextmanager
        async def hang() -> AsyncIterator[None]:
            with monkeypatch.context() as patch:
                patch.setattr(kafka, "delay_s", lambda: HOURS_S)
                yield

        return hang
