"""The records of coordinator logs: KRaft's, KIP-1164's, those of `__consumer_offsets`, and our extensions.

Their JSON schemas are in this folder.
"""

from __future__ import annotations

from diskless_core.protocol.codec import ApiData, CompiledRecord


class RegisterBrokerRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a broker has registered."""


class UnregisterBrokerRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a broker is no member any more."""


class BrokerRegistrationChangeRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a broker is fenced, unfenced, or shuts down."""


class TopicRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a topic exists."""


class ConfigRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a setting of a topic or broker has a new value."""


class ClientQuotaRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a quota of clients has a new value."""


class RemoveTopicRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a topic is gone."""


class FeatureLevelRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a feature of the cluster has a level."""


class ProducerIdsRecord(CompiledRecord, ApiData, load_json=__package__):
    """KRaft: a block of producer ids is handed out."""


class DisklessPartitionsCreatedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: partitions of a topic exist."""


class DisklessTopicDeletedRecord(CompiledRecord, ApiData, load_json=__package__):
    """KIP-1164: a topic is gone."""


class DisklessFileCommittedRecord(CompiledRecord, ApiData, load_json=__package__):
    """KIP-1164: batches of a WAL object are committed. On the hot path `file_committed` packs it."""


class DisklessRecordsDeletedRecord(CompiledRecord, ApiData, load_json=__package__):
    """KIP-1164: the start of a partition moved up."""


class DisklessFileDeletedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: a WAL object is gone from the object store."""


class DisklessFileHandedOverRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: a WAL object has its next owner."""


class DisklessFileReceivedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: a WAL object came from its owner before."""


class DisklessFileForgottenRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: nothing of a WAL object has to be known any more."""


class DisklessHorizonRaisedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: older WAL objects cannot be committed any more."""


class DisklessRecordsTieredRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: records of a partition are in a segment now."""


class DisklessPartitionAdoptedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: an empty partition has the records of segments."""


class DisklessRemoteLogMetadataRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: what is known of a segment in remote storage has changed."""


class DisklessProducersExpiredRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: producers are forgotten."""


class CoordinatorEntryRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: term and sequence, first in each entry of a coordinator log."""


class CoordinatorClaimRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: a node claims to lead."""


class CoordinatorNoOpRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: changes nothing."""


class CoordinatorSnapshotRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: the parts of a shard's snapshot."""


class LogNamedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: the id of a shard's log."""


class LogMovedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: the end of a shard's log, which goes on elsewhere."""


class PartitionsPlacedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: partitions of a topic belong to these coordinators."""


class TopicSettledRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: the coordinators of a topic have done what was decided."""


class ClusterNamedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: the cluster's id."""


class NodeIdAllocatedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: a broker that is configured without a node id has one."""


class CoordinatorNominationRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: who should lead a coordinator."""


class CoordinatorsCountedRecord(CompiledRecord, ApiData, load_json=__package__):
    """Extension: how many coordinators of a kind there are."""


class OffsetCommitKey(CompiledRecord, ApiData, load_json=__package__):
    """`__consumer_offsets`: key of a committed offset."""


class OffsetCommitValue(CompiledRecord, ApiData, load_json=__package__):
    """`__consumer_offsets`: a committed offset."""


class GroupMetadataKey(CompiledRecord, ApiData, load_json=__package__):
    """`__consumer_offsets`: key of a group."""


class GroupMetadataValue(CompiledRecord, ApiData, load_json=__package__):
    """`__consumer_offsets`: a group of the classic protocol."""


METADATA_RECORDS: dict[int, type[CompiledRecord]] = {
    record.json["apiKey"]: record
    for name, record in tuple(globals().items())
    if name.endswith("Record") and record is not CompiledRecord
}
"""Records in KRaft's framing, by api key: all that are no keys and no values."""
