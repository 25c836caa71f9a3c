"""`remote_log_metadata=kafka` where the Kafka is away, or refuses, when the broker starts."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError, RemoteLogMetadataServices
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.testing.remote_log_metadata_tools import PARTITION, segment
from diskless_kafka import remote_log_metadata
from diskless_kafka.remote_log_metadata import MAX_PAUSE_MS
from tests.support.apache_kafka import free_ports
from tests.support.metadata_topic import node, topic_settings
from tests.support.virtual_time import run

SERVICES = RemoteLogMetadataServices(cluster_id="ours", ledger=MemoryLedger())
BOOTSTRAP = "one:9092,two:9092"
AWAY = RemoteLogMetadataError("nobody answers")
REFUSED = RemoteLogMetadataError("no such user", retriable=False)


class Sessions:
    """In place of the sessions of a node: `starts` has what becomes of the next ones, None where a start works."""

    def __init__(self) -> None:
        self.starts: list[Exception | None] = []
        self.started_at: list[float] = []
        self.stopped = 0

    def __call__(self, *_: Any) -> Sessions:
        return self

    async def start(self) -> None:
        self.started_at.append(asyncio.get_running_loop().time())
        outcome = self.starts.pop(0) if self.starts else AWAY
        if outcome is not None:
            raise outcome

    async def stop(self) -> None:
        self.stopped += 1

    def deletions(self) -> list[Any]:
        return []


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    made = Sessions()
    monkeypatch.setattr(remote_log_metadata, "MetadataSession", made)
    return made


def test_until_the_kafka_is_there_it_is_tried_at_growing_intervals_and_every_call_can_be_made_later(
    sessions: Sessions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        metadata = node(topic_settings(BOOTSTRAP, "segments"), tmp_path)
        sessions.starts = [AWAY] * 10 + [REFUSED, OSError("disk"), ValueError("defect"), None]
        await metadata.start(SERVICES)
        assert sessions.started_at == [0]
        for call in (metadata.deleting_partitions(), metadata.list(PARTITION), metadata.add(segment(1, 0, 9))):
            with pytest.raises(RemoteLogMetadataError, match=f"at {BOOTSTRAP}: nobody answers") as error:
                await call
            assert error.value.retriable
        await asyncio.sleep(120)
        assert await metadata.deleting_partitions() == []
        tried = sessions.started_at
        pauses = [after - before for before, after in pairwise(tried)]
        assert pauses == pytest.approx([min(0.1 * 2**number, MAX_PAUSE_MS / 1000) for number in range(13)], rel=0.5)
        assert sessions.stopped == 13
        await metadata.stop()
        assert sessions.stopped == 14
        assert sum("not known yet" in record.message for record in caplog.records) == 13

    run(main)


def test_what_is_stopped_while_the_kafka_is_away_tries_no_more(sessions: Sessions, tmp_path: Path) -> None:
    async def main() -> None:
        metadata = node(topic_settings(BOOTSTRAP, "segments"), tmp_path)
        await metadata.start(SERVICES)
        await asyncio.sleep(5)
        await metadata.stop()
        tried = len(sessions.started_at)
        await asyncio.sleep(60)
        assert (len(sessions.started_at), sessions.stopped) == (tried, tried)
        with pytest.raises(RemoteLogMetadataError, match="stopped"):
            await metadata.list(PARTITION)

    run(main)


def test_what_the_kafka_refuses_fails_the_start(sessions: Sessions, tmp_path: Path) -> None:
    async def main() -> None:
        metadata = node(topic_settings(BOOTSTRAP, "segments"), tmp_path)
        sessions.starts = [REFUSED]
        with pytest.raises(RemoteLogMetadataError, match=f"at {BOOTSTRAP}: no such user") as error:
            await metadata.start(SERVICES)
        assert not error.value.retriable
        assert sessions.stopped == 1

    run(main)


async def test_a_broker_starts_while_nobody_listens_there(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    metadata = node(topic_settings(f"127.0.0.1:{port}", "segments", initialization_attempt_timeout_ms=100), tmp_path)
    await metadata.start(SERVICES)
    try:
        with pytest.raises(RemoteLogMetadataError, match=f"127.0.0.1:{port}") as error:
            await metadata.list(PARTITION)
        assert error.value.retriable
    finally:
        await metadata.stop()


async def test_without_a_file_of_its_settings_a_broker_does_not_start(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    wrong = topic_settings(BOOTSTRAP, "segments", security_protocol="SSL", ssl_ca_location=missing)
    with pytest.raises(RemoteLogMetadataError, match=f"No such file or directory: '{missing}'") as error:
        await node(wrong, tmp_path).start(SERVICES)
    assert not error.value.retriable
