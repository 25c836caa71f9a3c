"""The levels of the feature `diskless.version`: which of them this build supports, and which records came with each.

A leader writes no record that needs more than the level in force, so a broker that is one level behind reads everything
until the level is raised. A new record, a new version of a record and a new table belong to a new level. A tagged field
needs none, for older builds pass over it; so no replica's state may depend on one that an older build lacks. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from diskless_core.protocol import messages
from diskless_core.protocol.codec import CompiledRecord
from diskless_core.protocol.messages import consumer_group
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import KeyedRecords, read_frame

FEATURE = "diskless.version"
"""The name of the feature, as `kafka-features` shows it."""

FIRST_LEVEL = 1
"""What is in force where no record says otherwise."""

RecordsOfLevels = Mapping[int, Mapping[type[CompiledRecord], Sequence[int]]]
"""The versions of records that came with each level."""

RECORDS_OF_LEVELS: RecordsOfLevels = {
    FIRST_LEVEL: {
        messages.RegisterBrokerRecord: (0, 1),
        messages.UnregisterBrokerRecord: (0,),
        messages.TopicRecord: (0,),
        messages.PartitionsPlacedRecord: (0,),
        messages.TopicSettledRecord: (0,),
        messages.ConfigRecord: (0,),
        messages.RemoveTopicRecord: (0,),
        messages.FeatureLevelRecord: (0,),
        messages.ClientQuotaRecord: (0,),
        messages.ProducerIdsRecord: (0,),
        messages.BrokerRegistrationChangeRecord: (0, 1),
        messages.DisklessPartitionsCreatedRecord: (0,),
        messages.DisklessTopicDeletedRecord: (0,),
        messages.DisklessFileCommittedRecord: (0,),
        messages.DisklessRecordsDeletedRecord: (0,),
        messages.CoordinatorEntryRecord: (0,),
        messages.CoordinatorClaimRecord: (0,),
        messages.CoordinatorNoOpRecord: (0,),
        messages.ClusterNamedRecord: (0,),
        messages.DisklessFileDeletedRecord: (0,),
        messages.NodeIdAllocatedRecord: (0,),
        messages.CoordinatorNominationRecord: (0,),
        messages.CoordinatorsCountedRecord: (0,),
        messages.CoordinatorSnapshotRecord: (0,),
        messages.DisklessHorizonRaisedRecord: (0,),
        messages.DisklessFileHandedOverRecord: (0,),
        messages.DisklessFileReceivedRecord: (0,),
        messages.DisklessFileForgottenRecord: (0,),
        messages.DisklessRecordsTieredRecord: (0,),
        messages.DisklessPartitionAdoptedRecord: (0,),
        messages.DisklessRemoteLogMetadataRecord: (0,),
        messages.DisklessProducersExpiredRecord: (0,),
        messages.OffsetCommitKey: (0, 1),
        messages.OffsetCommitValue: (0, 1, 2, 3, 4),
        messages.GroupMetadataKey: (2,),
        messages.GroupMetadataValue: (0, 1, 2, 3, 4),
        consumer_group.ConsumerGroupMetadataKey: (3,),
        consumer_group.ConsumerGroupMetadataValue: (0,),
        consumer_group.ConsumerGroupMemberMetadataKey: (5,),
        consumer_group.ConsumerGroupMemberMetadataValue: (0,),
        consumer_group.ConsumerGroupTargetAssignmentMetadataKey: (6,),
        consumer_group.ConsumerGroupTargetAssignmentMetadataValue: (0,),
        consumer_group.ConsumerGroupTargetAssignmentMemberKey: (7,),
        consumer_group.ConsumerGroupTargetAssignmentMemberValue: (0,),
        consumer_group.ConsumerGroupCurrentMemberAssignmentKey: (8,),
        consumer_group.ConsumerGroupCurrentMemberAssignmentValue: (0,),
        consumer_group.ConsumerGroupRegularExpressionKey: (16,),
        consumer_group.ConsumerGroupRegularExpressionValue: (0,),
        messages.LogNamedRecord: (0,),
        messages.LogMovedRecord: (0,),
    },
}
"""All records that may stand in a coordinator log or a snapshot. The highest level is that of this build."""

_VERSION = struct.Struct(">h")


class FeatureLevelError(Exception):
    """A leader was about to write a record that needs a higher level than the one in force: a defect in an operation.

    Nothing was written.
    """


class LevelRange(NamedTuple):
    """The levels that a build supports, both ends inclusive."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"{self.oldest}-{self.newest}"

    def has(self, level: int) -> bool:
        """Whether a level is supported."""
        return self.oldest <= level <= self.newest


class FeatureLevels:
    """What a build knows of levels.

    Args:
        records: the records of each level, `RECORDS_OF_LEVELS` for this build. It supports the highest level and the
            one below it.

    Attributes:
        supported: the levels that it reads and writes.
    """

    def __init__(self, records: RecordsOfLevels = RECORDS_OF_LEVELS) -> None:
        newest = max(records)
        self.supported = LevelRange(max(FIRST_LEVEL, newest - 1), newest)
        self._level_of = {
            (record_class, version): level
            for level, classes in records.items()
            for record_class, versions in classes.items()
            for version in versions
        }
        self._framed = {
            (_api_key(record_class), version): level
            for (record_class, version), level in self._level_of.items()
            if record_class.__name__.endswith("Record")
        }

    def declared(self) -> Iterator[tuple[type[CompiledRecord], int]]:
        """All records with their versions, of every level."""
        return iter(self._level_of)

    def require(self, data: RecordData, level: int, keyed: KeyedRecords | None = None) -> None:
        """Refuse a record that needs a higher level than `level`. One that no level declares needs the newest.

        Args:
            keyed: the records with a key that may stand in the log.

        Raises:
            FeatureLevelError: it does.
        """
        needed = self._needed(data, keyed)
        if needed > level:
            raise FeatureLevelError(f"a record needs {FEATURE} {needed}, and {level} is in force")

    def _needed(self, data: RecordData, keyed: KeyedRecords | None) -> int:
        if data.key is not None:
            return self._needed_with_key(data.key, data.value, keyed)
        if data.value is None:
            return self.supported.newest
        frame = read_frame(data.value)
        return self._framed.get((frame.api_key, frame.version), self.supported.newest)

    def _needed_with_key(self, key: bytes, value: bytes | None, keyed: KeyedRecords | None) -> int:
        if keyed is None:
            return self.supported.newest
        (key_version,) = _VERSION.unpack_from(key)
        key_class = type(keyed.decode_key(key))
        versions = [(key_class, key_version)]
        if value is not None:
            versions.append((keyed.values[key_class], *_VERSION.unpack_from(value)))
        return max(self._level_of.get(one, self.supported.newest) for one in versions)


def _api_key(record_class: type[CompiledRecord]) -> int:
    api_key: int = record_class.json["apiKey"]
    return api_key


BUILD_LEVELS = FeatureLevels()
"""Those of this build."""
