"""The broker: connections, dispatch, handlers, and the composition root. What it serves is made in the rooms below.

Composition, in the order of a start:

- `node`: makes the parts, starts and stops them in order. `services` is what it gives to the handlers.
- `contexts`, `part_settings`, `tiering_backends`: what plugins and parts get from the configuration.
- `coordinators`: the coordinator shards of a node. `object_owner` checks that the objects are this cluster's.
  `shard_watch` exports figures of the shards.
- `errors`: what ends a start. `memory`, `open_files`: what the process may use.

Connections, from the outside to the inside:

- `listening` binds the sockets; `connection_limit` says how many clients may come.
- `connection`: one client. `arrivals` and `frame_pool` are the memory of requests that arrive.
- `dispatch`: from a frame to the handler of its API. `authorization` is asked who may do what.
- `handlers`: one module for each API or a few that belong together; `protocol_support` documents them.

Between brokers:

- `peer_connections`: requests to other brokers.
- `coordinator_service`, `coordinator_reads`, `file_commits`, `shard_attempts`: answers to those of other brokers, from
  this node's shards.
"""
