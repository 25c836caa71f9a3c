"""The requests and responses of the Diskless coordinator: KIP-1164's, and the extensions to them.

Their JSON schemas are in this folder; `docs/protocol_extensions.md` lists what is added to the KIP's.
"""

from __future__ import annotations

from diskless_core.protocol.codec import ApiMessage


class DisklessCreatePartitionsRequest(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessCreatePartitions"."""


class DisklessCreatePartitionsResponse(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessCreatePartitions"."""


class DisklessDeleteTopicsRequest(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessDeleteTopics"."""


class DisklessDeleteTopicsResponse(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessDeleteTopics"."""


class DisklessCommitFileRequest(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessCommitFile"."""


class DisklessCommitFileResponse(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessCommitFile"."""


class DisklessDeleteRecordsRequest(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessDeleteRecords"."""


class DisklessDeleteRecordsResponse(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessDeleteRecords"."""


class DisklessListOffsetsRequest(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessListOffsets"."""


class DisklessListOffsetsResponse(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessListOffsets"."""


class DisklessFindBatchesRequest(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessFindBatches"."""


class DisklessFindBatchesResponse(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessFindBatches"."""


class DisklessDescribeFilesRequest(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessDescribeFiles"."""


class DisklessDescribeFilesResponse(ApiMessage, load_json=__package__):
    """KIP-1164, "DisklessDescribeFiles"."""


class DisklessHandOverFilesRequest(ApiMessage, load_json=__package__):
    """Extension to KIP-1164, "WAL file management"."""


class DisklessHandOverFilesResponse(ApiMessage, load_json=__package__):
    """Extension to KIP-1164, "WAL file management"."""


class DisklessRaiseHorizonRequest(ApiMessage, load_json=__package__):
    """Extension to KIP-1164, "Orphan files"."""


class DisklessRaiseHorizonResponse(ApiMessage, load_json=__package__):
    """Extension to KIP-1164, "Orphan files"."""


class DisklessFollowShardRequest(ApiMessage, load_json=__package__):
    """Extension to KIP-1164, "Local state machine"."""


class DisklessFollowShardResponse(ApiMessage, load_json=__package__):
    """Extension to KIP-1164, "Local state machine"."""


class DisklessReadObjectRequest(ApiMessage, load_json=__package__):
    """Extension to KIP-1164: a cache that the brokers of a rack share."""


class DisklessReadObjectResponse(ApiMessage, load_json=__package__):
    """Extension to KIP-1164: a cache that the brokers of a rack share."""


class DisklessAllocateNodeIdRequest(ApiMessage, load_json=__package__):
    """Extension to KIP-631: a node id for a broker that is configured without one."""


class DisklessAllocateNodeIdResponse(ApiMessage, load_json=__package__):
    """Extension to KIP-631: a node id for a broker that is configured without one."""


class DisklessDescribeShardsRequest(ApiMessage, load_json=__package__):
    """Extension to KIP-1164, "Monitoring"."""


class DisklessDescribeShardsResponse(ApiMessage, load_json=__package__):
    """Extension to KIP-1164, "Monitoring"."""


class DisklessIdentifyBrokerRequest(ApiMessage, load_json=__package__):
    """Extension to KIP-631: whether a broker is where it says."""


class DisklessIdentifyBrokerResponse(ApiMessage, load_json=__package__):
    """Extension to KIP-631: whether a broker is where it says."""
