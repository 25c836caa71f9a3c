"""An import from Apache Kafka that is done again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from diskless_core.cli import kafka_importer
from diskless_core.cli.kafka_importer import Importer
from diskless_core.cli.remote_storages import RemoteStorages
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.testing.remote_log_metadata_tools import PARTITION, segment

OURS = PARTITION._replace(topic_id=uuid.UUID(int=99), partition=0)
THEIRS = [segment(1, 0, 9), segment(2, 10, 19)]
IDS = [one.segment_id.id for one in THEIRS]


class Target:
    """Remembers what it was to adopt."""

    def __init__(self) -> None:
        self.adopted: list[tuple[TopicIdPartition, int, list[RemoteLogSegmentMetadata]]] = []

    def ensure_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> Any:
        raise NotImplementedError

    def segments(self, topic: Any) -> Any:
        raise NotImplementedError

    def adopt(
        self, partition: TopicIdPartition, log_start_offset: int, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> None:
        self.adopted.append((partition, log_start_offset, list(segments)))


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[uuid.UUID]:
    """The ids of the segments that are copied from now on."""
    ids: list[uuid.UUID] = []

    async def copy(copy: Any, source: Any, target: Any) -> bytes:
        ids.append(copy.source.segment_id.id)
        return b"copied"

    monkeypatch.setattr(kafka_importer, "copy_segment", copy)
    return ids


def known(copy: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """A segment as Diskless knows it that has its copy."""
    return replace(
        copy,
        segment_id=RemoteLogSegmentId(OURS, copy.segment_id.id),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        custom_metadata=b"known",
    )


async def import_again(
    target: Target, theirs: list[RemoteLogSegmentMetadata], there: list[RemoteLogSegmentMetadata]
) -> None:
    storages = RemoteStorages.configured(None, [])
    importer = Importer(target=target, storages=storages, place="", place_options=(), echo=lambda _: None)
    plan = kafka_importer._Plan(partition=0, log_start_offset=3, log_end_offset=20, segments=theirs)
    await importer._adopt(OURS, plan, {0: there}, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("there", [0, 1, 2])
async def test_what_is_there_is_not_copied_again_and_all_of_it_is_adopted(there: int, copied: list[uuid.UUID]) -> None:
    target = Target()
    await import_again(target, THEIRS, [known(one) for one in THEIRS[:there]])
    assert copied == IDS[there:]
    [(partition, log_start_offset, segments)] = target.adopted
    assert (partition, log_start_offset) == (OURS, 3)
    assert [one.segment_id for one in segments] == [RemoteLogSegmentId(OURS, segment_id) for segment_id in IDS]
    assert [one.custom_metadata for one in segments] == [b"known", b"known"][:there] + [b"copied", b"copied"][there:]


async def test_a_partition_without_segments_stays_empty(copied: list[uuid.UUID]) -> None:
    target = Target()
    await import_again(target, [], [])
    assert not copied
    assert not target.adopted
