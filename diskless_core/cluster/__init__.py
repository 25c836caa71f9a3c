"""What the cluster consists of: its id, topics, their settings, quotas, and blocks of producer ids. A kind of shard.

- `records`, `tables`, `state_machine`, `operations`, `shard`: the kind. Its records are KRaft's where KRaft has them.
- `part`: what a node makes of it: `topics`, `configs`, `client_quotas`, `producer_ids`.
- `spreading`: which Diskless coordinator a new partition is given to.
- `gateways`, `leader_choice`, `client_racks`: whom clients are told to produce to. `gateway_plan`: what a gateway
  placement costs.
- The rules of settings: `config_values`, `topic_configs`, `tiering_configs`, `broker_configs`, `config_layers`,
  `config_changes`.
"""
