"""The runtime of a coordinator shard, whatever it coordinates (KIP-1164, "Leadership and deployment").

Each kind of shard has a room of its own: `diskless`, `cluster`, `groups`. The runtime knows none of them.

- `shard`: one shard on one node: its replica, the leader's side, and what others ask of it. Begin there.
- `state_machine`, `tables`: what makes a kind of shard, and the state that it changes.
- `leader`, `leadership`, `pipeline`, `entries`: claims and terms, and commands on their way through the log.
- `replica`, `shard_store`, `readers`: what the log says, in memory and in the store.
- `snapshots`, `snapshotter`: the store's content in the object store, so that the log stays short.
- `peers`, `calls`, `routing`: how another node's shard is asked.
- `strict_reads`, `status`, `description`, `meter`: for reads that may miss nothing, for operators, for metrics.
"""
