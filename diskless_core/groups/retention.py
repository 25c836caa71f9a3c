"""The end of offsets and groups: retention, and the deletion of a topic."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Sequence
from functools import partial

from diskless_core.coordinator.slices import chunks
from diskless_core.coordinator.state_machine import Command
from diskless_core.groups.consumer.records import tombstones
from diskless_core.groups.model import CommittedOffset
from diskless_core.groups.offsets import expired_offsets
from diskless_core.groups.records import GroupRecord, GroupsRecord, OffsetRecord
from diskless_core.groups.registry import GroupRegistry, is_idle
from diskless_core.groups.settings import GroupSettings
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.tables import CONSUMER_GROUPS, GROUP_OFFSETS, GROUPS

_DELETIONS_IN_ONE_ENTRY = 1_000


class OffsetRetention:
    """Deletes what is no longer wanted. Every method raises CoordinatorError where the shard's `submit` does."""

    def __init__(self, shard: GroupsShard, registry: GroupRegistry, settings: GroupSettings) -> None:
        self._shard = shard
        self._registry = registry
        self._settings = settings

    async def expire(self) -> None:
        """Delete the offsets that outlived their retention, and groups that have neither members nor offsets."""
        for group_id in self._registry:
            await self._registry.require_loaded()
            if await self._shard.submit(partial(self._expire_group, group_id)):
                self._registry.forget_if_idle(group_id)
            await asyncio.sleep(0)

    def _expire_group(self, group_id: str, command: Command[GroupsRecord]) -> bool:
        """Emit the deletions; return whether the group goes with them."""
        consumers = command.get(CONSUMER_GROUPS, (group_id,))
        group = self._registry.find(group_id)
        persisted = command.get(GROUPS, (group_id,))
        offsets = self._registry.offsets.of(group_id)
        current = {key: value for key in offsets if (value := command.get(GROUP_OFFSETS, (group_id, *key))) is not None}
        expired = expired_offsets(
            consumers or group,
            persisted,
            current,
            passed=self._shard.clock_watch.passed(),
            retention_ms=self._settings.offsets_retention_ms,
        )
        for topic, partition in expired:
            command.emit(OffsetRecord(group_id=group_id, topic=topic, partition=partition, value=None))
        has_members = bool(consumers.members) if consumers is not None else not is_idle(group)
        goes = len(expired) == len(current) and not has_members
        for record in tombstones(group_id, consumers) if goes and consumers is not None else ():
            command.emit(record)
        if goes and persisted is not None:
            command.emit(GroupRecord(group_id=group_id, value=None))
        return goes

    async def topics_deleted(self, topic_ids: Collection[uuid.UUID], names: Collection[str]) -> None:
        """Delete all offsets that were committed for these topics, but none for newer ones of the same names."""
        await self._registry.require_loaded()
        offsets, ids, gone = self._registry.offsets, frozenset(topic_ids), frozenset(names)
        keys: list[tuple[str, str, int]] = []
        for group_id in dict.fromkeys(group_id for name in names for group_id in offsets.groups_of(name)):
            for some in chunks(list(offsets.of(group_id).items())):
                keys += [(group_id, *place) for place, offset in some if _is_of(offset, place[0], ids, gone)]
                if len(keys) >= _DELETIONS_IN_ONE_ENTRY:
                    await self._shard.submit(partial(_delete, keys, ids, gone))
                    keys = []
                await asyncio.sleep(0)  # there may be very many
        if keys:
            await self._shard.submit(partial(_delete, keys, ids, gone))


def _delete(
    keys: Sequence[tuple[str, str, int]],
    topic_ids: Collection[uuid.UUID],
    names: Collection[str],
    command: Command[GroupsRecord],
) -> None:
    for group_id, topic, partition in keys:
        value = command.get(GROUP_OFFSETS, (group_id, topic, partition))
        if value is not None and _is_of(value, topic, topic_ids, names):
            command.emit(OffsetRecord(group_id=group_id, topic=topic, partition=partition, value=None))


def _is_of(offset: CommittedOffset, topic: str, topic_ids: Collection[uuid.UUID], names: Collection[str]) -> bool:
    return topic in names if offset.topic_id is None else offset.topic_id in topic_ids
