"""Diskless partitions: a kind of shard, and what asks it, here and from other nodes (KIP-1164).

- `records`, `tables`, `state_machine`, `operations`, `shard`: the kind. Of operations and their rows there is more in
  `file_operations`, `file_stages`, `trimming` (objects), `tiering_operations`, `remote_segments`, `ledger` (segments),
  `producer_state` (idempotence), `coalescing`, `run_lookup`, `time_index`, `time_lookup` (runs).
- `commands`, `api`: what a coordinator is asked and what it answers, wherever it is led.
- `clients`, `remote`, `commit_bundles`: the coordinators of the cluster, each asked where it is led.
- `service`, with `service_commits`, `service_reads` and `attempts`: answers the requests of other nodes.
- `purgatory`: where requests wait for a commit.

A batch has one shape at each boundary that it crosses. Only the module that defines a shape takes it apart by position:

    shape            boundary                                            made by
    BatchHeader      a producer's frame, or bytes of an object           `protocol.record_batch.read_header`
    ValidBatch       frame to accumulator: it may be appended            `produce.validation.validate`
    CommitBatch      broker to coordinator: it lies there, commit it     `ValidBatch.at`, when its object is sealed
    CommittedBatch   coordinator to log: it has these offsets            `CommittedBatch.of`, for `operations`
    BatchResult      coordinator to broker: what became of it            `commit_results.unpack_results`
    Run              adjacent ones, for stores, readers and engines      `coalescing.coalesce`
    ReadRun          object store to Fetch: a run's prepared bytes       `fetch.object_reader`

Beside CommittedBatch the log has RefusedBatch and DuplicateBatch, for batches that got no new offsets. The row of an
object in FILES has its BatchResults packed, so that a repeat is answered as before; the row of a producer has a
WindowBatch for each batch by which a repeat is known. A row of BATCHES is a Run; layouts, plans of compaction and
FindBatches send Runs, and `wal.batches.prepare` makes a Run's bytes into what consumers get.
"""
