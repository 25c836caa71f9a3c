"""Consumer groups: a kind of shard, and the group coordinator on it.

- `records`, `tables`, `state_machine`, `shard`: the kind, with Apache Kafka's records in `__consumer_offsets`.
- `service`: the group coordinator. It answers requests; `administration`, `offset_commit` and `offset_fetch` have those
  that need no membership. `registry` holds the groups while this node leads the shard.
- `classic`, `cycle`, `roster`, `effects`: the classic protocol, without I/O. `consumer`: the new one (KIP-848).
- `retention`: the end of offsets and groups.
"""
