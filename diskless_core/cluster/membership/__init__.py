"""Which brokers belong to the cluster, where they are reached, and which of them live (KIP-631, "Broker registration").

- `model`, `records`, `tables`, `operations`: registrations in the cluster shard. Pure.
- `sessions`, `registrar`, `service`: the side of the shard's leader, which hears heartbeats and fences who is silent.
- `lifecycle`, `member`: the side of each broker, which registers and sends heartbeats.
- `brokers`, `peers`: what any node knows of the others. `part`: all of it together.
"""
