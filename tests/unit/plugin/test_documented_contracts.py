"""The examples of docs/plugins pass the contract suites that the same pages tell authors to run."""

from __future__ import annotations

from tests.unit.plugin.documented import example

TestCoordinatorLogExample = example("coordinator_log").TestListLog
TestCoordinatorStoreExample = example("coordinator_store").TestDictStore
TestWalObjectStoreExample = example("wal_object_store").TestDictObjectStore
TestOffsetAssignmentExample = example("offset_assignment").TestAlignedAssignment
TestGatewayPlacementExample = example("gateway_placement").TestDedicatedPlacement
TestOrphanDetectionExample = example("orphan_detection").TestPacedDetection
TestRemoteStorageExample = example("remote_storage").TestDictRemoteStorage
TestRemoteLogMetadataExample = example("remote_log_metadata").TestSqliteMetadata
TestSegmentCompactionExample = example("segment_compaction").TestOneByOne
