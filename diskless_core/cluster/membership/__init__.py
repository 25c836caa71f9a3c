"""Which brokers belong to the cluster, where they are reached, and which of them live (KIP-631, "Broker registration").

- `model`, `records`, `tables`, `operations`: registrations in the cluster shard, and decisions on them.
- `sessions`, `heartbeats`, `registrar`: the side of the shard's leader, which fences brokers that are silent.
- `service`, `wire`: the requests of brokers and administrators.
- `lifecycle`, `member`: the side of each broker, which registers and sends heartbeats.
- `brokers`, `peers`: what any node knows of the others. `part`: all of it together.
"""
