"""Tiered storage (KIP-405): segments in remote storage are made, read and removed here.

`part` makes all of it for a node: `Tiering`. Begin there.

How a compaction flows, file by file:

1. `compaction`: the `Compactor` begins a job on demand, or periodically where something is due. One job runs at a time.
   It chooses the partitions whose coordinator this node leads.
2. `job`: a `TieringJob` is what an engine (`segment_compaction`) gets. For each partition the engine asks for segments
   to be made, and the job plans them from the runs that the coordinator has.
3. `planning`: says which runs become which segments, and what a rest at the end waits for. `retrying` gives the engine
   backends that try again and count.
4. `external_job`: stands in for an engine that runs in another process, such as Spark. Its driver takes the same steps
   over HTTP (`admin/driver`).
5. `copies`: the engine reports `begin`, `finish` or `abandon` of each copy. A copy is noted in `remote_log_metadata`,
   copied, and noted as complete. Then the coordinator takes it and forgets the batches: from here on the segment has
   the records.
6. `removal_rules`: says which copies nobody will ever take. `copies` removes them before a partition is planned
   and after a job, so what a job leaves that was killed anywhere is completed or cleared away by the next one.
7. `report`: what the job has done so far.

How segments go: a topic's deletion marks its partitions, and the remover deletes what is marked and what lies below a
log start. Both are in `removal`, on the same `removal_rules`.

How segments are read: `segment_reader` finds the segment and the chunk (`chunks`) of an offset, and `segment_times`
those of a time, through `index_cache` and `loading_cache`. `remote_reads` bounds how many reads go on. `fetch` builds
answers from that.

Beside these: `leadership` tells `remote_log_metadata` what this node leads. `layouts` says where the records of
partitions lie. `segment_admin` lists segments and adopts those that were made elsewhere; `migration` makes them from
Apache Kafka's, and the other way round. `awaited_storage` starts a remote storage that is away when the broker starts.
`retrying` holds the pauses between attempts. `topics` is what all this asks of the cluster's topics.
"""
